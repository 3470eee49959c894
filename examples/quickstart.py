"""The main job from Python: real handwritten digits, 0.1 ms a picture, on this machine's CPU (some minutes)."""

import sartor

result = sartor.fit("digits", latency="100us", effort="quick", out="runs/quickstart")
latency = result.certificate["budgets"]["latency"]
print(f"asked {latency['limit']} ms, measured {latency['measured']:.4f} ms")
print(f"test accuracy {result.certificate['accuracy']['test']:.1f} %")
print(f"{len(result.frontier)} optimal trade-offs; the report: {result.path}/report.html")

faster = sartor.solve(result.path, latency="70us")  # another budget: no search again
print(f"at 70 us: {faster.certificate['accuracy']['test']:.1f} %")
