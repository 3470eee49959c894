"""Training-free proxies: a network and a batch in, a number out; larger should mean better."""
