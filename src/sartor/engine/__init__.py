"""Training: one loop, checkpoints, evaluation, distillation; devices and processes through Lightning Fabric."""
