"""A network of one's own, compressed to a third of its multiply-accumulates and exported (a few minutes on a CPU)."""

from torch import nn

import sartor

layers = []
for into, out in ((1, 32), (32, 48), (48, 64)):
    layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))  # untrained: trained first

result = sartor.compress(net, "digits", macs="33%", effort="quick", pretrain=15, out="runs/compress-example")
costs = result.certificate["costs"]
print(f"widths {result.certificate['string']}: {costs['macs']['measured']:.0f} MACs, {costs['params']['measured']:.0f} "
      f"parameters, {costs['latency']['measured']:.4f} ms")  # fmt: skip
print(f"test accuracy {result.certificate['accuracy']['test']:.1f} %")
print(f"layer by layer: {result.path}/report.html; to deploy: {result.path}/model/model.onnx")
