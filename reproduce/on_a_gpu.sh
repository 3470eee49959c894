#!/bin/bash
# What the papers' tables need of a GPU, at reduced size, side by side on one device: about 8 minutes on an H200.
#   bash reproduce/on_a_gpu.sh CIFAR10.npz MNIST_FOLDER [OUT]
# A job's results go to the folder `keep` as soon as it ends, and OUT/papers.tgz holds them all. Where only the parts came
# back, the scripts record them (--record, or the same command) with SARTOR_MEASURED=FILE, a record of that machine.
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
R=/tmp/papers; C=$1; M=$2; OUT=${3:-/tmp}; LIMIT=${LIMIT:-440}
mkdir -p $R/log $R/keep; touch $R/begun
keep() { find benchmarks/results reproduce/figures -newer $R/begun -type f -exec cp {} $R/keep/ \;; }
go() { local n=$1; shift; { timeout $LIMIT "$@" > $R/log/$n.txt 2>&1; keep; } & }
A3="python reproduce/bayesnas_algorithm3.py run"
# 3, 4: one supernet on 80 %, the paper's estimator on it
go binas python reproduce/binas_predictors.py $R/binas/seed-0 --fresh $C --seconds 200 --held-out 40 --images 2000 --networks 200 --passes 1 --epochs 64
# 12: three lambdas until nothing leaves, then trained beside random cells
for i in 0 1 2; do go cells$i python benchmarks/bayesnas_cifar10.py --data $C --out $R/cells --part $i/3 --rounds 0 --rate 3 --batch 128 \
  --images 10000 --cells 5 --network 5 16 --random 3 --beside --train-images 20000 --train-epochs 6 --minutes 6; done
# 13: tree cells, 9 instead of 54
go tree python benchmarks/bayesnas_treecell.py --data $C --out $R/tree --blocks 3 --alpha 28 --rounds 8 --batch 128 --rate 3 --minutes 5.5 --beside random
# 11: NASI-FIX, NASI-ADA, our defaults, random
go darts python benchmarks/nasi_darts.py --data $C --out $R/darts --network 5 16 --images 20000 --epochs 8 --seeds 3 --minutes 5.7
# 14: algorithm 3 by lambda alone; LeNets on the CPU's cores
for s in 3 6; do go resnet$s $A3 resnet18 --data $C --device cuda --out $R/a3 --strength $s --width 32 --pretrain 12 --epochs 3 --batch 256 --minutes 6; done
for s in 1 3 10 30; do go lenet300_$s $A3 300-100 --data $M --out $R/a3 --strength $s --pretrain 8 --minutes 6; done
for s in 1 3 10; do go lenet5_$s $A3 5 --data $M --out $R/a3 --strength $s --images 12000 --pretrain 5 --epochs 4 --minutes 6; done
wait
python reproduce/bayesnas_algorithm3.py record --out $R/a3 > $R/log/a3.txt 2>&1
for f in $R/log/*.txt; do echo "== $f"; tail -n 4 $f; done
keep; cp -r $R/log $R/keep/; find $R/cells $R/tree $R/a3 $R/darts $R/binas -name "*.json" -size -1024k | tar czf $R/keep/parts.tgz -T -
tar czf $OUT/papers.tgz -C $R keep; nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader
