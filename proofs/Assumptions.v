(** What each theorem rests on.  `make proofs` demands that it be nothing: each
    line of the output must say "Closed under the global context". *)

From Fencepost Require Import
  Kernel Cover Commit Histories GroupCommit Decisions CounterExamples.

Print Assumptions exact.
Print Assumptions completeness.
Print Assumptions precision.
Print Assumptions bucket_count.
Print Assumptions empty_item_matches_everything.
Print Assumptions exact_up_to.
Print Assumptions admits_exactly_valid.
Print Assumptions index_exact.
Print Assumptions judge_admits_exactly.
Print Assumptions group_commit_exact.
Print Assumptions batching_is_invisible.
Print Assumptions group_commit_valid.
Print Assumptions valid_prefix.
Print Assumptions positions_dense.
Print Assumptions serializable.
Print Assumptions aborts_are_necessary.
Print Assumptions linear_cover.
Print Assumptions keys_alone_are_imprecise.
Print Assumptions blind_batch_is_wrong.
Print Assumptions blind_batch_differs.
Print Assumptions up_to_needs_its_bound.
Print Assumptions flattened_items_miss_conflicts.
