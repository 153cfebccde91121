# The proofs: compiled and checked again by coqchk, resting on no axioms; then the oracle, its
# vectors compared with the committed ones, and the Python code compared with both.

.PHONY: proofs proofs-tools vectors
proofs: proofs-tools
	$(MAKE) -C proofs check oracle
	rm -rf proofs/_build/vectors
	$(PYTHON) -m tests.proofs.vectors proofs/_build/vectors
	diff -r proofs/_build/vectors tests/proofs/vectors
	$(PYTHON) -m pytest tests/proofs/test_vectors.py tests/proofs/test_oracle.py

# Writes the committed vectors anew, after a change to the definitions or to the generator.
vectors: proofs-tools
	$(MAKE) -C proofs oracle
	$(PYTHON) -m tests.proofs.vectors tests/proofs/vectors

proofs-tools:
	@if ! { command -v coqc && command -v coqchk && command -v ocamlfind; } > /dev/null; then \
	  if [ "$$(id -u)" = 0 ]; then \
	    $(APT_UPDATE); apt-get install --yes --no-install-recommends coq ocaml-nox ocaml-findlib; \
	  else \
	    echo "Coq is missing. Install it and try again: sudo apt-get install coq ocaml-nox ocaml-findlib" >&2; exit 1; \
	  fi; \
	fi
