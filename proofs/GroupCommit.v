(** Group commit: many appends, judged in order, one sync for all of them.

    A batch is judged against a ledger that keeps the committed log and the
    staged events apart.  The verdicts and the store are those of committing
    the appends one by one, so nobody can tell how appends were batched. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Kernel Commit Histories.
Import ListNotations.

(** Python's [judge(appends, ledger)]: each append after what the ones before
    it have staged. *)
Fixpoint grouped (l : Ledger) (batch : list Append) : list Verdict * Ledger :=
  match batch with
  | [] => ([], l)
  | a :: rest =>
      let (verdict, staged) := judge l a in
      let (verdicts, final) := grouped staged rest in
      (verdict :: verdicts, final)
  end.

Definition commit_batch (st : Store) (batch : list Append) : list Verdict * Store :=
  let (verdicts, l) := grouped (opened st) batch in (verdicts, commit l).

(** What it must equal: each append alone, durable before the next is looked
    at. *)
Fixpoint one_by_one (st : Store) (appends : list Append) : list Verdict * Store :=
  match appends with
  | [] => ([], st)
  | a :: rest =>
      let (verdict, l) := judge (opened st) a in
      let (verdicts, final) := one_by_one (commit l) rest in
      (verdict :: verdicts, final)
  end.

Lemma judge_commit l a :
  fst (judge (opened (commit l)) a) = fst (judge l a) /\
  commit (snd (judge (opened (commit l)) a)) = commit (snd (judge l a)).
Proof.
  unfold judge; rewrite objection_commit.
  destruct (objection l a); simpl.
  - now rewrite commit_opened.
  - now rewrite placed_commit, commit_stage.
Qed.

Lemma grouped_from l batch :
  (fst (grouped l batch), commit (snd (grouped l batch))) = one_by_one (commit l) batch.
Proof.
  revert l; induction batch as [|a batch IH]; intros l; simpl; auto.
  destruct (judge_commit l a) as [V C].
  destruct (judge (opened (commit l)) a) as [v m], (judge l a) as [v' m'].
  simpl in V, C; subst v'; rewrite C, <- IH.
  now destruct (grouped m' batch).
Qed.

Theorem group_commit_exact st batch : commit_batch st batch = one_by_one st batch.
Proof.
  unfold commit_batch.
  rewrite <- (commit_opened st) at 2; rewrite <- grouped_from.
  now destruct (grouped (opened st) batch).
Qed.

(** However appends are cut into batches, each gets the same verdict. *)
Fixpoint commit_batches (st : Store) (batches : list (list Append)) : list Verdict * Store :=
  match batches with
  | [] => ([], st)
  | batch :: rest =>
      let (verdicts, next) := commit_batch st batch in
      let (more, final) := commit_batches next rest in
      (verdicts ++ more, final)
  end.

Lemma one_by_one_app st l m :
  one_by_one st (l ++ m) =
  (fst (one_by_one st l) ++ fst (one_by_one (snd (one_by_one st l)) m),
   snd (one_by_one (snd (one_by_one st l)) m)).
Proof.
  revert st; induction l as [|a l IH]; intros st; simpl.
  - now destruct (one_by_one st m).
  - destruct (judge (opened st) a) as [v next]; rewrite IH.
    now destruct (one_by_one (commit next) l).
Qed.

Corollary batching_is_invisible st batches :
  commit_batches st batches = one_by_one st (concat batches).
Proof.
  revert st; induction batches as [|batch batches IH]; intros st; simpl; auto.
  rewrite group_commit_exact, one_by_one_app.
  destruct (one_by_one st batch) as [verdicts next]; simpl.
  rewrite IH; now destruct (one_by_one next (concat batches)).
Qed.

(** The history of a store is what was written, in order. *)
Fixpoint history (appends : list Append) (verdicts : list Verdict) : list Append :=
  match appends, verdicts with
  | a :: appends, v :: verdicts =>
      if written v then a :: history appends verdicts else history appends verdicts
  | _, _ => []
  end.

Lemma judge_store st a :
  commit (snd (judge (opened st) a)) =
  if written (fst (judge (opened st) a)) then write st a else st.
Proof.
  pose proof (judge_written st a) as W; unfold judge in *.
  destruct (objection (opened st) a) as [v|]; simpl in *.
  - destruct (written v); [now discriminate (proj1 W eq_refl) | apply commit_opened].
  - now rewrite (proj2 W eq_refl).
Qed.

Lemma one_by_one_history before appends :
  let (verdicts, st) := one_by_one (replay before) appends in
  st = replay (before ++ history appends verdicts) /\
  (Valid before -> Valid (before ++ history appends verdicts)).
Proof.
  revert before; induction appends as [|a appends IH]; intros before; simpl.
  - now rewrite app_nil_r.
  - pose proof (judge_store (replay before) a) as J.
    pose proof (judge_written (replay before) a) as W.
    destruct (judge (opened (replay before)) a) as [v l]; simpl in J, W; rewrite J.
    destruct (written v) eqn:E.
    + rewrite <- replay_snoc; specialize (IH (before ++ [a])).
      destruct (one_by_one _ appends) as [verdicts st]; simpl; rewrite E.
      rewrite <- app_assoc in IH; destruct IH as [-> V]; split; auto.
      intros B; apply V, valid_snoc; split; auto.
      apply objection_none, (proj1 W eq_refl).
    + specialize (IH before).
      destruct (one_by_one _ appends) as [verdicts st]; simpl; now rewrite E.
Qed.

(** Whatever is asked of a store, in whatever batches: what it holds is the
    replay of a valid history. *)
Theorem group_commit_valid batches :
  let (verdicts, st) := commit_batches nothing batches in
  st = replay (history (concat batches) verdicts) /\
  Valid (history (concat batches) verdicts).
Proof.
  rewrite batching_is_invisible.
  pose proof (one_by_one_history [] (concat batches)) as H; simpl in H.
  change (replay []) with nothing in H.
  destruct (one_by_one nothing (concat batches)) as [verdicts st].
  destruct H as [E V]; auto using valid_nil.
Qed.
