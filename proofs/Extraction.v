(** The oracle: the definitions above as an OCaml program.

    Booleans, lists, options and pairs become OCaml's own, and characters its
    [char].  Numbers stay as Coq defines them, in unary, so nothing about
    arithmetic has to be trusted.  The driver in oracle.ml only reads and
    prints. *)

From Coq Require Import Extraction ExtrOcamlBasic ExtrOcamlString.
From Fencepost Require Import Kernel Cover Commit GroupCommit.

Extraction Language OCaml.

Extraction "kernel.ml"
  matches write_buckets write_buckets_up_to read_targets write_keys read_keys
  sequence nothing opened head grouped.
