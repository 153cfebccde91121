# The protocol, model-checked. `models-small` is also part of `make test`; `models` adds the larger
# configurations, which take minutes.

.PHONY: models models-small
models-small:
	$(PYTHON) -m pytest tests/proofs/test_models.py

models: models-small
	$(PYTHON) models/tlc.py Large
	$(PYTHON) models/tlc.py Small Liveness.cfg
