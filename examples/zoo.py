"""Published networks, built and counted: parameters and multiply-accumulates."""

from sartor import Task
from sartor.costs import published as zoo

for name in zoo.names():
    entry = zoo.entry(name, Task(classes=1000, image=224))
    print(f"{name:<12} {entry['params']:>10,} parameters")
