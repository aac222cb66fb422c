"""The public functions. The command line calls the same ones, so both write the same studies and pages.

Each takes a model (loaded, a name or a path) and config objects, or the fields of these as keywords:

    headscope.gate(model, TaskData("mnli", "glue"), GateConfig(keep=20), Run(out="gated"))
    headscope.gate(model, task="mnli", data="glue", keep=20, out="gated")
"""
