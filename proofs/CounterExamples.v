(** What does not hold.

    Each lemma refutes a shortcut that looks right.  They are checked like the
    theorems, so none of the shortcuts can be proved by mistake. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Subsets Kernel Cover Commit Histories GroupCommit.
Import ListNotations.
Open Scope string_scope.

Definition an_event (t : string) (ts : list string) : Event :=
  {| type := t; tags := ts; id := None |}.

Definition an_item (ts tags : list string) : QueryItem :=
  {| types := ts; item_tags := tags |}.

Lemma not_matched e i : item_matches e i = false -> ~ ItemMatches e i.
Proof. intros F M; apply item_matches_iff in M; congruence. Qed.

(** Keys alone invent conflicts: an item of two tags reads one of them, and an
    event may have just that one. *)
Lemma keys_alone_are_imprecise :
  ~ (forall e i, meet (read_keys i) (write_keys e) -> ItemMatches e i).
Proof.
  intros precise.
  set (e := an_event "Enrolled" ["course:c1"]).
  set (i := an_item [] ["course:c1"; "student:s1"]).
  apply (not_matched e i); [reflexivity|].
  apply precise; exists (TagKey "course:c1"); vm_compute; auto.
Qed.

(** A batch that is judged against the log alone, blind to itself. *)
Fixpoint blind (st : Store) (l : Ledger) (batch : list Append) : list Verdict * Ledger :=
  match batch with
  | [] => ([], l)
  | a :: rest =>
      let verdict := fst (judge (opened st) a) in
      let (verdicts, final) := blind st (if written verdict then stage l a else l) rest in
      (verdict :: verdicts, final)
  end.

(** Two withdrawals from one wallet, both decided on the same reading. *)
Definition withdrawal : Append := {|
  events := [an_event "Withdrawn" ["wallet:w1"]];
  conditions := [{| fail_if_events_match := [an_item [] ["wallet:w1"]]; after := 0 |}];
  unless := None;
  checkpoint := None;
|}.

Lemma blind_batch_is_wrong :
  exists batch,
    let (verdicts, l) := blind nothing (opened nothing) batch in
    commit l = replay (history batch verdicts) /\ ~ Valid (history batch verdicts).
Proof.
  exists [withdrawal; withdrawal]; vm_compute history; split; [reflexivity|].
  intros V.
  apply (V [withdrawal] withdrawal [] eq_refl _ (or_introl eq_refl) _ (or_introl eq_refl)).
  apply spoils_iff; reflexivity.
Qed.

(** It differs from committing one by one, while [grouped] never does. *)
Lemma blind_batch_differs :
  exists batch, fst (blind nothing (opened nothing) batch) <> fst (one_by_one nothing batch).
Proof. exists [withdrawal; withdrawal]; vm_compute; discriminate. Qed.

(** Writing subsets of up to [k] tags misses conflicts with longer items: the
    bound in [exact_up_to] is needed. *)
Lemma up_to_needs_its_bound :
  exists k s c,
    Spoils s c /\
    ~ meet (write_buckets_up_to k (event s)) (read_targets (fail_if_events_match c)).
Proof.
  exists 1, {| position := 1; event := an_event "Enrolled" ["course:c1"; "student:s1"] |},
    {| fail_if_events_match := [an_item [] ["course:c1"; "student:s1"]]; after := 0 |}.
  split; [apply spoils_iff; reflexivity|].
  intros [b [W [<-|[]]]]; vm_compute in W; intuition discriminate.
Qed.

(** Flattening the items of a query to one list of types and one of tags misses
    conflicts. *)
Lemma flattened_items_miss_conflicts :
  ~ (forall e q, Matches e q ->
     ItemMatches e (an_item (flat_map types q) (flat_map item_tags q))).
Proof.
  intros flat.
  set (e := an_event "Opened" ["wallet:w1"]).
  set (q := [an_item [] ["wallet:w1"]; an_item [] ["wallet:w2"]]).
  apply (not_matched e (an_item (flat_map types q) (flat_map item_tags q))); [reflexivity|].
  apply flat, matches_iff; reflexivity.
Qed.
