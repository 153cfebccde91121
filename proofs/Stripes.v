(** Locks on stripes: a reader of a stripe keeps writers of it away.

    Appends run at the same time.  Each locks the stripes of the keys that its
    conditions read and that its events write, is checked against the log while
    it holds them, and is committed some time later.  Two appends may hold
    their locks together unless one reads a stripe that the other writes; two
    writers do not disturb each other.  Because the keys are a cover, nothing
    that is committed in between can change what the check has found, whatever
    the hash.  So each verdict is the one that the append would have got alone,
    at its commit. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Kernel Cover Commit Histories GroupCommit.
Import ListNotations.

Section Stripes.
Context {Stripe : Type} (hash : Key -> Stripe).

Definition queries (a : Append) : list Query :=
  map fail_if_events_match (conditions a) ++ match unless a with Some q => [q] | None => [] end.

Definition stripes_read (a : Append) : list Stripe :=
  map hash (flat_map (flat_map read_keys) (queries a)).

Definition stripes_written (a : Append) : list Stripe :=
  map hash (flat_map write_keys (events a)).

Definition Apart (a b : Append) : Prop :=
  ~ meet (stripes_read a) (stripes_written b) /\ ~ meet (stripes_read b) (stripes_written a).

(** Ids and checkpoints are guarded by locks of their own, which are not
    modelled here. *)
Definition OnlyQueries (a : Append) : Prop := ids (events a) = [] /\ checkpoint a = None.

(** An append that holds its locks has been checked, or not yet. *)
Inductive Checked := NotYet | Found (o : option Verdict).

Record World := {
  store : Store;
  holding : list (Append * Checked);
  finished : list (Append * Verdict);
}.

Inductive Step : World -> World -> Prop :=
| locks st hs fs a :
    OnlyQueries a ->
    (forall b found, In (b, found) hs -> Apart a b) ->
    Step {| store := st; holding := hs; finished := fs |}
         {| store := st; holding := (a, NotYet) :: hs; finished := fs |}
| checks st before rest fs a :
    Step {| store := st; holding := before ++ (a, NotYet) :: rest; finished := fs |}
         {| store := st;
            holding := before ++ (a, Found (objection (opened st) a)) :: rest; finished := fs |}
| writes st before rest fs a :
    Step {| store := st; holding := before ++ (a, Found None) :: rest; finished := fs |}
         {| store := write st a; holding := before ++ rest;
            finished := fs ++ [(a, placed (opened st) a)] |}
| refuses st before rest fs a v :
    Step {| store := st; holding := before ++ (a, Found (Some v)) :: rest; finished := fs |}
         {| store := st; holding := before ++ rest; finished := fs ++ [(a, v)] |}.

Inductive Reachable : World -> Prop :=
| at_first : Reachable {| store := nothing; holding := []; finished := [] |}
| and_then w w' : Reachable w -> Step w w' -> Reachable w'.

(** An append that is apart from another cannot be spoiled by it. *)
Lemma apart_unmatched a b q e :
  Apart a b -> In q (queries a) -> In e (events b) -> ~ Matches e q.
Proof.
  intros [A _] Q E [i [I M]]; apply A.
  destruct (keys_meet e i M) as [k [R W]].
  exists (hash k); split; apply in_map, in_flat_map.
  - exists q; split; auto; apply in_flat_map; eauto.
  - eauto.
Qed.

Lemma sequence_events n es s : In s (sequence n es) -> In (event s) es.
Proof.
  revert n; induction es as [|e es IH]; intros n; simpl; [tauto|].
  intros [<-|I]; eauto.
Qed.

Lemma first_match_apart st a b q n :
  Apart a b -> In q (queries a) ->
  first_match (opened (write st b)) q n = first_match (opened st) q n.
Proof.
  intros A Q; unfold first_match, position_where; simpl.
  rewrite !or_else_none, find_app.
  destruct (find _ (sequence _ _)) as [s|] eqn:F; [exfalso | now rewrite or_else_none].
  apply find_some in F as [I S]; apply spoils_iff in S as [_ M]; simpl in M.
  apply sequence_events in I; now apply (apart_unmatched a b q (event s)).
Qed.

Lemma objection_apart st a b :
  OnlyQueries a -> Apart a b ->
  objection (opened (write st b)) a = objection (opened st) a.
Proof.
  intros [no_ids no_checkpoint] A; unfold objection, judge_ids, judge_checkpoint.
  rewrite no_ids, no_checkpoint; simpl.
  f_equal.
  - unfold judge_unless; destruct (unless a) as [q|] eqn:U; auto.
    rewrite (first_match_apart st a b); auto.
    unfold queries; rewrite U; auto with datatypes.
  - f_equal.
    assert (forall c, In c (conditions a) -> In (fail_if_events_match c) (queries a)) as Q
      by (intros c I; unfold queries; apply in_or_app; left; now apply in_map).
    induction (conditions a) as [|c cs IH]; simpl; auto.
    rewrite (first_match_apart st a b) by auto with datatypes.
    rewrite IH by auto with datatypes; reflexivity.
Qed.

(** What holds of every reachable world. *)
Record Invariant (w : World) : Prop := {
  as_alone : one_by_one nothing (map fst (finished w)) = (map snd (finished w), store w);
  only_queries : forall a found, In (a, found) (holding w) -> OnlyQueries a;
  kept_apart : ForallOrdPairs (fun x y => Apart (fst x) (fst y)) (holding w);
  still_true : forall a o, In (a, Found o) (holding w) -> objection (opened (store w)) a = o;
}.

Lemma apart_sym a b : Apart a b -> Apart b a.
Proof. unfold Apart; tauto. Qed.

Lemma pairs_without {A} (R : A -> A -> Prop) before x rest :
  (forall y z, R y z -> R z y) ->
  ForallOrdPairs R (before ++ x :: rest) ->
  ForallOrdPairs R (before ++ rest) /\ forall y, In y (before ++ rest) -> R x y.
Proof.
  intros sym; induction before as [|b before IH]; simpl; intros P; inversion P as [|? ? F P']; subst.
  - split; auto; now apply Forall_forall.
  - destruct (IH P') as [P'' X]; rewrite Forall_forall in F; split.
    + constructor; auto; apply Forall_forall; intros y I; apply F.
      apply in_app_iff in I as [|]; auto with datatypes.
    + intros y [<-|I]; auto with datatypes.
Qed.

Lemma pairs_same {A B} (f : A -> B) (R : B -> B -> Prop) before x y rest :
  f x = f y ->
  ForallOrdPairs (fun p q => R (f p) (f q)) (before ++ x :: rest) ->
  ForallOrdPairs (fun p q => R (f p) (f q)) (before ++ y :: rest).
Proof.
  intros E; induction before as [|b before IH]; simpl; intros P; inversion P as [|? ? F P']; subst.
  - constructor; auto; now rewrite <- E.
  - constructor; auto; rewrite Forall_forall in *; intros z I.
    apply in_app_iff in I as [I|[<-|I]]; [| rewrite <- E |]; apply F; auto with datatypes.
Qed.

Lemma one_by_one_snoc appends verdicts st a :
  one_by_one nothing appends = (verdicts, st) ->
  one_by_one nothing (appends ++ [a]) =
  (verdicts ++ [fst (judge (opened st) a)], commit (snd (judge (opened st) a))).
Proof.
  intros E; rewrite one_by_one_app, E; simpl; now destruct (judge (opened st) a).
Qed.

Lemma invariant_holds w : Reachable w -> Invariant w.
Proof.
  induction 1 as [|w w' R [alone only apart still] S].
  - split; simpl; [reflexivity | tauto | constructor | tauto].
  - destruct S as [st hs fs a O A | st before rest fs a | st before rest fs a | st before rest fs a v];
      simpl in alone, only, apart, still.
    + split; simpl; auto.
      * intros b found [E|I]; [now injection E as <- _ | eauto].
      * constructor; auto; apply Forall_forall; intros [b found] I; simpl; eauto.
      * intros b o [E|I]; [discriminate | auto].
    + split; simpl; auto.
      * intros b found I; apply in_app_iff in I as [I|[E|I]].
        2: injection E as <- <-.
        all: eapply only, in_app_iff; simpl; eauto.
      * now apply pairs_same with (x := (a, NotYet)).
      * intros b o I; apply in_app_iff in I as [I|[E|I]].
        2: now injection E as <- <-.
        all: apply still, in_app_iff; simpl; auto.
    + assert (objection (opened st) a = None) as N by (apply still; auto with datatypes).
      destruct (pairs_without _ _ _ _ (fun x y => apart_sym (fst x) (fst y)) apart) as [apart' from].
      assert (forall x, In x (before ++ rest) -> In x (before ++ (a, Found None) :: rest)) as more
        by (intros x I; apply in_app_iff in I as [|]; auto with datatypes).
      split; simpl; auto.
      * rewrite !map_app; simpl; rewrite (one_by_one_snoc _ _ _ _ alone).
        unfold judge; now rewrite N.
      * eauto.
      * intros b o I; rewrite objection_apart; eauto.
        apply apart_sym; now apply (from (b, Found o)).
    + assert (objection (opened st) a = Some v) as N by (apply still; auto with datatypes).
      destruct (pairs_without _ _ _ _ (fun x y => apart_sym (fst x) (fst y)) apart) as [apart' _].
      assert (forall x, In x (before ++ rest) -> In x (before ++ (a, Found (Some v)) :: rest)) as more
        by (intros x I; apply in_app_iff in I as [|]; auto with datatypes).
      split; simpl; eauto.
      rewrite !map_app; simpl; rewrite (one_by_one_snoc _ _ _ _ alone).
      unfold judge; rewrite N; simpl; now rewrite commit_opened.
Qed.

(** With the exact check under the lock, stripes change no verdict: those that
    were given, and the store, are those of the same appends one by one. *)
Theorem stripes_change_no_verdict w :
  Reachable w ->
  one_by_one nothing (map fst (finished w)) = (map snd (finished w), store w).
Proof. intros R; apply as_alone, invariant_holds, R. Qed.

End Stripes.
