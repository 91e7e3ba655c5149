"""Evaluation: the race to a target accuracy over a slow link, its workloads, its reports."""
