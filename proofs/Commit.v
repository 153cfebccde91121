(** The judgement of core/judging.py: what becomes of an append.

    A [Store] is what is committed: the log and the checkpoints.  A [Ledger] is
    how a batch sees it: the committed store, and what the batch has staged on
    top.  [judge] gives one append its verdict and stages what it accepts.  The
    verdicts and the order of the checks are those of Python's [_judge_one]. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Kernel.
Import ListNotations.

Record Append := {
  events : list Event;
  conditions : list AppendCondition;
  unless : option Query;
  checkpoint : option (string * nat);
}.

(** [Placed first last already] and the refusals. *)
Inductive Verdict :=
| Placed (first last : nat) (already : bool)
| Conflicting (condition : AppendCondition) (position : nat)
| Overlapping (stored : string) (position : nat) (missing : string)
| Behind (name : string) (position current : nat).

(** The newest checkpoint of a name is the first in the list. *)
Record Store := { log : list SequencedEvent; checkpoints : list (string * nat) }.

Definition nothing : Store := {| log := []; checkpoints := [] |}.

Record Ledger := { committed : Store; staged : Store }.

Definition opened (st : Store) : Ledger := {| committed := st; staged := nothing |}.

(** What a store holds when the staged part has become durable. *)
Definition commit (l : Ledger) : Store := {|
  log := log (committed l) ++ log (staged l);
  checkpoints := checkpoints (staged l) ++ checkpoints (committed l);
|}.

(** The four questions that a judgement asks.  Each looks at the committed and
    at the staged part in turn, and never joins the two. *)
Definition head_of (log : list SequencedEvent) (below : nat) : nat :=
  last (map position log) below.

Definition head (l : Ledger) : nat :=
  head_of (log (staged l)) (head_of (log (committed l)) 0).

Definition or_else {A} (first second : option A) : option A :=
  match first with Some x => Some x | None => second end.

Definition position_where (holds : SequencedEvent -> bool) (l : Ledger) : option nat :=
  option_map position (or_else (find holds (log (committed l))) (find holds (log (staged l)))).

Definition first_match (l : Ledger) (q : Query) (n : nat) : option nat :=
  position_where (fun s => spoils s {| fail_if_events_match := q; after := n |}) l.

Definition has_id (i : string) (s : SequencedEvent) : bool :=
  match id (event s) with Some j => String.eqb i j | None => false end.

Definition position_of (l : Ledger) (i : string) : option nat := position_where (has_id i) l.

Definition named (name : string) (c : string * nat) : bool := String.eqb name (fst c).

Definition checkpoint_of (l : Ledger) (name : string) : nat :=
  match or_else (find (named name) (checkpoints (staged l)))
                (find (named name) (checkpoints (committed l))) with
  | Some (_, position) => position
  | None => 0
  end.

(** Events get the positions that follow the head. *)
Fixpoint sequence (head : nat) (es : list Event) : list SequencedEvent :=
  match es with
  | [] => []
  | e :: rest => {| position := S head; event := e |} :: sequence (S head) rest
  end.

Definition stage (l : Ledger) (a : Append) : Ledger := {|
  committed := committed l;
  staged := {|
    log := log (staged l) ++ sequence (head l) (events a);
    checkpoints :=
      match checkpoint a with Some c => [c] | None => [] end ++ checkpoints (staged l);
  |};
|}.

(** The checks, in Python's order: ids, [unless], conditions, the checkpoint.
    Each says [None] when it has no objection. *)
Definition ids (es : list Event) : list string :=
  flat_map (fun e => match id e with Some i => [i] | None => [] end) es.

Definition known (l : Ledger) (is : list string) : list (string * nat) :=
  flat_map (fun i => match position_of l i with Some p => [(i, p)] | None => [] end) is.

Definition unknown (l : Ledger) (is : list string) : list string :=
  filter (fun i => match position_of l i with Some _ => false | None => true end) is.

Definition least (n : nat) (ns : list nat) : nat := fold_right Nat.min n ns.
Definition most (n : nat) (ns : list nat) : nat := fold_right Nat.max n ns.

(** Of the missing ids Python names the last one. *)
Definition judge_ids (l : Ledger) (a : Append) : option Verdict :=
  match known l (ids (events a)), rev (unknown l (ids (events a))) with
  | [], _ => None
  | (i, p) :: _, missing :: _ => Some (Overlapping i p missing)
  | (_, p) :: rest, [] =>
      Some (Placed (least p (map snd rest)) (most p (map snd rest)) true)
  end.

Definition judge_unless (l : Ledger) (a : Append) : option Verdict :=
  match unless a with
  | None => None
  | Some q => option_map (fun p => Placed p p true) (first_match l q 0)
  end.

Fixpoint judge_conditions (l : Ledger) (cs : list AppendCondition) : option Verdict :=
  match cs with
  | [] => None
  | c :: rest =>
      match first_match l (fail_if_events_match c) (after c) with
      | Some p => Some (Conflicting c p)
      | None => judge_conditions l rest
      end
  end.

Definition judge_checkpoint (l : Ledger) (a : Append) : option Verdict :=
  match checkpoint a with
  | None => None
  | Some (name, p) =>
      let current := checkpoint_of l name in
      if p <=? current then Some (Behind name p current) else None
  end.

(** What speaks against writing the append, if anything does. *)
Definition objection (l : Ledger) (a : Append) : option Verdict :=
  or_else (judge_ids l a)
    (or_else (judge_unless l a)
      (or_else (judge_conditions l (conditions a)) (judge_checkpoint l a))).

Definition placed (l : Ledger) (a : Append) : Verdict :=
  match events a with
  | [] => Placed (head l) (head l) false
  | es => Placed (S (head l)) (head l + length es) false
  end.

Definition judge (l : Ledger) (a : Append) : Verdict * Ledger :=
  match objection l a with
  | Some verdict => (verdict, l)
  | None => (placed l a, stage l a)
  end.

(** The only verdict which says that something was written. *)
Definition written (v : Verdict) : bool :=
  match v with Placed _ _ false => true | _ => false end.

(** Asking the two parts in turn is asking the whole. *)
Lemma find_app {A} (f : A -> bool) l m : find f (l ++ m) = or_else (find f l) (find f m).
Proof. induction l as [|x l IH]; simpl; auto; now destruct (f x). Qed.

Lemma or_else_none {A} (x : option A) : or_else x None = x.
Proof. now destruct x. Qed.

Lemma position_where_commit holds l :
  position_where holds (opened (commit l)) = position_where holds l.
Proof. unfold position_where; simpl; now rewrite find_app, or_else_none. Qed.

Lemma checkpoint_of_commit l name :
  checkpoint_of (opened (commit l)) name = checkpoint_of l name.
Proof. unfold checkpoint_of; simpl; now rewrite find_app. Qed.

Lemma head_of_app l m below : head_of (l ++ m) below = head_of m (head_of l below).
Proof.
  unfold head_of; rewrite map_app; generalize (map position l) (map position m); clear.
  intros l m; destruct m as [|n m] using rev_ind; [now rewrite app_nil_r|].
  now rewrite app_assoc, !last_last.
Qed.

Lemma head_commit l : head (opened (commit l)) = head l.
Proof. unfold head; simpl; apply head_of_app. Qed.

Lemma judge_conditions_commit l cs :
  judge_conditions (opened (commit l)) cs = judge_conditions l cs.
Proof.
  induction cs as [|c cs IH]; simpl; auto.
  unfold first_match; now rewrite position_where_commit, IH.
Qed.

Lemma objection_commit l a : objection (opened (commit l)) a = objection l a.
Proof.
  unfold objection.
  assert (judge_ids (opened (commit l)) a = judge_ids l a) as ->.
  { unfold judge_ids, known, unknown, position_of.
    assert (forall i, position_where (has_id i) (opened (commit l)) = position_where (has_id i) l) as same
      by (intros i; apply position_where_commit).
    assert (forall is, known (opened (commit l)) is = known l is) as K
      by (intros is; apply flat_map_ext; intros i; unfold position_of; now rewrite same).
    assert (forall is, unknown (opened (commit l)) is = unknown l is) as U
      by (intros is; apply filter_ext; intros i; unfold position_of; now rewrite same).
    unfold known, unknown, position_of in K, U; now rewrite K, U. }
  assert (judge_unless (opened (commit l)) a = judge_unless l a) as ->.
  { unfold judge_unless; destruct (unless a); auto.
    unfold first_match; now rewrite position_where_commit. }
  rewrite judge_conditions_commit.
  unfold judge_checkpoint; destruct (checkpoint a) as [[name p]|]; auto.
  now rewrite checkpoint_of_commit.
Qed.

Lemma placed_commit l a : placed (opened (commit l)) a = placed l a.
Proof. unfold placed; now rewrite head_commit. Qed.

Lemma commit_opened st : commit (opened st) = st.
Proof. destruct st; unfold commit; simpl; now rewrite app_nil_r. Qed.

Lemma commit_stage l a : commit (stage (opened (commit l)) a) = commit (stage l a).
Proof.
  unfold stage; rewrite head_commit; unfold commit; simpl.
  now rewrite app_nil_r, <- !app_assoc.
Qed.

(** A judgement objects to conditions exactly when some event of the store
    spoils one of them. *)
Definition Spoiled (st : Store) (c : AppendCondition) : Prop :=
  exists s, In s (log st) /\ Spoils s c.

Lemma position_where_none holds l :
  position_where holds l = None <-> forall s, In s (log (commit l)) -> holds s = false.
Proof.
  rewrite <- position_where_commit; unfold position_where; simpl; rewrite or_else_none.
  destruct (find holds _) eqn:E; simpl; split; try discriminate; auto.
  - intros none; apply find_some in E as [I H]; now rewrite (none _ I) in H.
  - intros _; now apply find_none.
Qed.

Lemma position_where_some holds l p :
  position_where holds l = Some p ->
  exists s, In s (log (commit l)) /\ holds s = true /\ position s = p.
Proof.
  rewrite <- position_where_commit; unfold position_where; simpl; rewrite or_else_none.
  destruct (find holds _) eqn:E; simpl; [|discriminate].
  intros H; injection H as <-; apply find_some in E as [I H]; eauto.
Qed.

Lemma condition_eta c :
  {| fail_if_events_match := fail_if_events_match c; after := after c |} = c.
Proof. now destruct c. Qed.

Lemma first_match_none l c :
  first_match l (fail_if_events_match c) (after c) = None <-> ~ Spoiled (commit l) c.
Proof.
  unfold first_match; rewrite condition_eta, position_where_none; unfold Spoiled; split.
  - intros none [s [I S]]; apply spoils_iff in S; rewrite none in S; auto; discriminate.
  - intros none s I; destruct (spoils s c) eqn:E; auto.
    exfalso; apply none; exists s; split; auto; now apply spoils_iff.
Qed.

Theorem judge_conditions_none l cs :
  judge_conditions l cs = None <-> forall c, In c cs -> ~ Spoiled (commit l) c.
Proof.
  induction cs as [|c cs IH]; simpl; [tauto|].
  destruct (first_match _ _ _) as [p|] eqn:E.
  - split; [discriminate|]; intros none.
    apply (proj2 (first_match_none l c)) in none; auto; congruence.
  - rewrite IH; apply first_match_none in E; split; auto.
    intros none d [<-|I]; auto.
Qed.

Theorem judge_conditions_some l cs v :
  judge_conditions l cs = Some v ->
  exists c s, In c cs /\ In s (log (commit l)) /\ Spoils s c /\ v = Conflicting c (position s).
Proof.
  induction cs as [|c cs IH]; simpl; [discriminate|].
  destruct (first_match _ _ _) as [p|] eqn:E.
  - intros H; injection H as <-.
    unfold first_match in E; rewrite condition_eta in E.
    apply position_where_some in E as [s [I [S <-]]].
    apply spoils_iff in S; exists c, s; auto 6.
  - intros H; destruct (IH H) as [d [s [I rest]]]; exists d, s; auto.
Qed.
