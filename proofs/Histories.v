(** The histories of a store.

    A history is the list of appends that were written, in the order of their
    commit.  It is valid when each condition holds at its commit point: no
    event that was there by then spoils it.  A store that refuses by buckets
    admits the valid histories, all of them and no others. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Kernel Commit.
Import ListNotations.

(** What a history leaves behind. *)
Definition write (st : Store) (a : Append) : Store := commit (stage (opened st) a).

Definition replay (h : list Append) : Store := fold_left write h nothing.

(** The definition to judge stores by.  It mentions no bucket, no judgement and
    no batch. *)
Definition Valid (h : list Append) : Prop :=
  forall before a rest, h = before ++ a :: rest ->
  forall c, In c (conditions a) ->
  forall s, In s (log (replay before)) -> ~ Spoils s c.

(** A store refuses by some test; it admits a history when it refuses none of
    its appends, each asked of the store that the ones before have left. *)
Fixpoint admits_from (refuses : Store -> Append -> bool) (st : Store) (h : list Append) : bool :=
  match h with
  | [] => true
  | a :: rest => negb (refuses st a) && admits_from refuses (write st a) rest
  end.

Definition admits refuses h := admits_from refuses nothing h.

(** The test by buckets: some event after the condition's [after] has a write
    bucket among its read targets. *)
Definition RefusedByBuckets (st : Store) (a : Append) : Prop :=
  exists c s, In c (conditions a) /\ In s (log st) /\ after c < position s /\
              meet (write_buckets (event s)) (read_targets (fail_if_events_match c)).

Lemma valid_nil : Valid [].
Proof. intros [|b before] a rest E; discriminate. Qed.

Lemma replay_snoc h a : replay (h ++ [a]) = write (replay h) a.
Proof. unfold replay; now rewrite fold_left_app. Qed.

(** A history is valid when it is valid up to its last append, and that one's
    conditions hold. *)
Lemma valid_snoc h a :
  Valid (h ++ [a]) <->
  Valid h /\ forall c, In c (conditions a) -> ~ Spoiled (replay h) c.
Proof.
  unfold Spoiled; split.
  - intros V; split.
    + intros before b rest -> c I s J.
      apply (V before b (rest ++ [a])); auto; now rewrite <- app_assoc.
    + intros c I [s [J S]]; now apply (V h a [] eq_refl c I s J).
  - intros [V last] before b rest E c I s J S.
    destruct rest as [|z rest] using rev_ind.
    + apply app_inj_tail in E as [-> ->]; apply (last c I); eauto.
    + clear IHrest; rewrite app_comm_cons, app_assoc in E.
      apply app_inj_tail in E as [-> ->].
      now apply (V before b rest eq_refl c I s J).
Qed.

Lemma admits_from_snoc refuses st h a :
  admits_from refuses st (h ++ [a]) =
  admits_from refuses st h && negb (refuses (fold_left write h st) a).
Proof.
  revert st; induction h as [|b h IH]; intros st; simpl.
  - now rewrite andb_true_r.
  - now rewrite IH, andb_assoc.
Qed.

Lemma refused_by_buckets_iff st a :
  RefusedByBuckets st a <-> exists c, In c (conditions a) /\ Spoiled st c.
Proof.
  unfold RefusedByBuckets, Spoiled; split.
  - intros [c [s [I [J B]]]]; apply exact in B; eauto.
  - intros [c [I [s [J S]]]]; apply exact in S; eauto.
Qed.

Theorem admits_exactly_valid (refuses : Store -> Append -> bool) :
  (forall st a, refuses st a = true <-> RefusedByBuckets st a) ->
  forall h, admits refuses h = true <-> Valid h.
Proof.
  intros by_buckets h; unfold admits.
  induction h as [|a h IH] using rev_ind; [split; auto using valid_nil|].
  rewrite admits_from_snoc, andb_true_iff, negb_true_iff, valid_snoc, IH.
  fold (replay h).
  apply and_iff_compat_l.
  rewrite <- not_true_iff_false, by_buckets, refused_by_buckets_iff.
  split; [intros none c I S; eauto | intros none [c [I S]]; exact (none c I S)].
Qed.

(** The test is computable, so such a store exists: it is enough to look up the
    last position in each target's bucket.  This is the dictionary of the group
    commit. *)
Definition bucket_dec (b d : Bucket) : {b = d} + {b <> d}.
Proof. repeat decide equality. Defined.

Definition last_in (log : list SequencedEvent) (b : Bucket) : nat :=
  list_max (map position (filter (fun s => if in_dec bucket_dec b (write_buckets (event s)) then true else false) log)).

Definition refuses_by_index (st : Store) (a : Append) : bool :=
  existsb (fun c => existsb (fun b => after c <? last_in (log st) b)
                            (read_targets (fail_if_events_match c)))
          (conditions a).

Lemma last_in_above l b n :
  n < last_in l b <-> exists s, In s l /\ n < position s /\ In b (write_buckets (event s)).
Proof.
  unfold last_in; induction l as [|s l IH]; simpl.
  - split; [lia | now intros [s [[] _]]].
  - destruct (in_dec bucket_dec b (write_buckets (event s))) as [B|B]; simpl.
    + rewrite Nat.max_lt_iff, IH; split.
      * intros [L|[t [I rest]]]; eauto.
      * intros [t [[<-|I] rest]]; [left; tauto | right; eauto].
    + rewrite IH; split.
      * intros [t [I rest]]; eauto.
      * intros [t [[<-|I] [L J]]]; [contradiction | eauto].
Qed.

Theorem index_exact st a : refuses_by_index st a = true <-> RefusedByBuckets st a.
Proof.
  unfold refuses_by_index, RefusedByBuckets, meet; rewrite existsb_exists; split.
  - intros [c [I E]]; apply existsb_exists in E as [b [J L]].
    apply Nat.ltb_lt, last_in_above in L as [s [K [L W]]].
    exists c, s; eauto 6.
  - intros [c [s [I [K [L [b [W R]]]]]]]; exists c; split; auto.
    apply existsb_exists; exists b; split; auto.
    apply Nat.ltb_lt, last_in_above; eauto.
Qed.

(** The judgement of core/judging.py admits the same histories, apart from what ids,
    [unless] and checkpoints refuse besides. *)
Definition FreshIds (st : Store) (a : Append) : Prop :=
  forall s i, In s (log st) -> In i (ids (events a)) -> id (event s) <> Some i.

Definition UnlessHolds (st : Store) (a : Append) : Prop :=
  forall q s, unless a = Some q -> In s (log st) -> 0 < position s -> ~ Matches (event s) q.

Definition CheckpointGrows (st : Store) (a : Append) : Prop :=
  forall name p, checkpoint a = Some (name, p) -> checkpoint_of (opened st) name < p.

Definition Admissible (st : Store) (a : Append) : Prop :=
  FreshIds st a /\ UnlessHolds st a /\
  (forall c, In c (conditions a) -> ~ Spoiled st c) /\
  CheckpointGrows st a.

Lemma has_id_iff i s : has_id i s = true <-> id (event s) = Some i.
Proof.
  unfold has_id; destruct (id (event s)) as [j|]; [|split; discriminate].
  rewrite String.eqb_eq; split; congruence.
Qed.

Lemma judge_ids_none st a : judge_ids (opened st) a = None <-> FreshIds st a.
Proof.
  transitivity (known (opened st) (ids (events a)) = []).
  - unfold judge_ids; destruct (known _ _) as [|[i p] rest]; [tauto|].
    destruct (rev _); split; discriminate.
  - unfold known, FreshIds; split.
    + intros none s i I J E.
      assert (position_of (opened st) i = None) as P.
      { destruct (position_of (opened st) i) as [p|] eqn:P; auto.
        assert (In (i, p) (flat_map (fun i => match position_of (opened st) i with
          Some p => [(i, p)] | None => [] end) (ids (events a)))) as K.
        { apply in_flat_map; exists i; rewrite P; simpl; auto. }
        now rewrite none in K. }
      unfold position_of in P; rewrite position_where_none, commit_opened in P.
      apply has_id_iff in E; now rewrite (P s I) in E.
    + intros fresh; induction (ids (events a)) as [|i is IH]; simpl; auto.
      rewrite IH by (intros s j I J; apply fresh; simpl; auto).
      destruct (position_of (opened st) i) as [p|] eqn:P; auto.
      unfold position_of in P; apply position_where_some in P as [s [I [H _]]].
      rewrite commit_opened in I; apply has_id_iff in H.
      exfalso; apply (fresh s i); simpl; auto.
Qed.

Lemma judge_unless_none st a : judge_unless (opened st) a = None <-> UnlessHolds st a.
Proof.
  unfold judge_unless, UnlessHolds; destruct (unless a) as [q|]; [|split; [discriminate | auto]].
  pose proof (first_match_none (opened st) {| fail_if_events_match := q; after := 0 |}) as F.
  simpl in F; rewrite commit_opened in F; unfold Spoiled, Spoils in F; simpl in F.
  transitivity (first_match (opened st) q 0 = None).
  { destruct (first_match _ _ _); simpl; split; congruence. }
  rewrite F; split.
  - intros none q' s E I P M; injection E as <-; eauto.
  - intros holds [s [I [P M]]]; exact (holds q s eq_refl I P M).
Qed.

Lemma judge_checkpoint_none st a : judge_checkpoint (opened st) a = None <-> CheckpointGrows st a.
Proof.
  unfold judge_checkpoint, CheckpointGrows.
  destruct (checkpoint a) as [[name p]|]; [|split; [discriminate | auto]].
  destruct (Nat.leb_spec p (checkpoint_of (opened st) name)); split; try discriminate; auto.
  - intros grows; specialize (grows name p eq_refl); lia.
  - intros _ n' p' E; injection E as <- <-; assumption.
Qed.

Lemma or_else_is_none {A} (x y : option A) : or_else x y = None <-> x = None /\ y = None.
Proof. destruct x; simpl; split; try discriminate; tauto || now intros [? ?]. Qed.

Theorem objection_none st a : objection (opened st) a = None <-> Admissible st a.
Proof.
  unfold objection, Admissible; rewrite !or_else_is_none.
  now rewrite judge_ids_none, judge_unless_none, judge_conditions_none,
    judge_checkpoint_none, commit_opened.
Qed.

Lemma judge_written st a :
  written (fst (judge (opened st) a)) = true <-> objection (opened st) a = None.
Proof.
  unfold judge; destruct (objection (opened st) a) as [v|] eqn:O; simpl.
  - split; [|discriminate].
    unfold objection, judge_ids, judge_unless, judge_checkpoint in O.
    (* No objection is a verdict which says that something was written. *)
    destruct (known _ _) as [|[i p] rest].
    2: { destruct (rev _); injection O as <-; discriminate. }
    destruct (unless a) as [q|]; simpl in O.
    1: destruct (first_match _ q 0) as [p|]; simpl in O; [injection O as <-; discriminate|].
    all: destruct (judge_conditions _ _) as [w|] eqn:C; simpl in O;
      [injection O as <-; apply judge_conditions_some in C as [c [s [_ [_ [_ ->]]]]]; discriminate|].
    all: destruct (checkpoint a) as [[name p]|]; [|discriminate].
    all: destruct (p <=? _); [injection O as <-; discriminate | discriminate].
  - split; auto; intros _; unfold placed; now destruct (events a).
Qed.

Definition refuses_by_judgement (st : Store) (a : Append) : bool :=
  negb (written (fst (judge (opened st) a))).

Theorem judge_admits_exactly h :
  admits refuses_by_judgement h = true <->
  forall before a rest, h = before ++ a :: rest -> Admissible (replay before) a.
Proof.
  unfold admits; induction h as [|a h IH] using rev_ind.
  - split; auto; intros _ [|b before] a rest E; discriminate.
  - rewrite admits_from_snoc, andb_true_iff; fold (replay h).
    unfold refuses_by_judgement at 2; rewrite negb_involutive, judge_written, objection_none, IH.
    split.
    + intros [V last] before b rest E.
      destruct rest as [|z rest] using rev_ind.
      * apply app_inj_tail in E as [-> ->]; auto.
      * clear IHrest; rewrite app_comm_cons, app_assoc in E.
        apply app_inj_tail in E as [-> ->]; eauto.
    + intros V; split; [|now apply (V h a [])].
      intros before b rest ->; apply (V before b (rest ++ [a])).
      now rewrite <- app_assoc.
Qed.

Corollary judge_admits_only_valid h : admits refuses_by_judgement h = true -> Valid h.
Proof.
  intros A before a rest E c I s J S.
  apply (proj1 (judge_admits_exactly h) A) in E as [_ [_ [holds _]]].
  apply (holds c I); exists s; auto.
Qed.

(** What a crash leaves is a prefix.  Any prefix of a valid history is a valid
    history, and its log is a prefix of the log: nothing that a reader was
    given has to be taken back, or moves. *)
Lemma replay_app h more :
  exists new, log (replay (h ++ more)) = log (replay h) ++ new.
Proof.
  induction more as [|a more IH] using rev_ind.
  - exists []; now rewrite !app_nil_r.
  - destruct IH as [new IH].
    rewrite app_assoc, replay_snoc; unfold write; simpl; rewrite IH, <- app_assoc; eauto.
Qed.

Theorem valid_prefix h n :
  Valid h ->
  Valid (firstn n h) /\
  exists lost, log (replay h) = log (replay (firstn n h)) ++ lost.
Proof.
  intros V; split.
  - intros before a rest E; apply (V before a (rest ++ skipn n h)).
    now rewrite app_comm_cons, app_assoc, <- E, firstn_skipn.
  - destruct (replay_app (firstn n h) (skipn n h)) as [lost E].
    rewrite firstn_skipn in E; eauto.
Qed.

(** Positions are dense: they count the events from 1. *)
Lemma positions_sequence n es : map position (sequence n es) = seq (S n) (length es).
Proof. revert n; induction es as [|e es IH]; intros n; simpl; auto; now rewrite IH. Qed.

Lemma last_seq start n below : last (seq start n) below = match n with 0 => below | S m => start + m end.
Proof.
  destruct n as [|n]; auto; rewrite seq_S, last_last; lia.
Qed.

Theorem positions_dense h :
  map position (log (replay h)) = seq 1 (length (log (replay h))).
Proof.
  induction h as [|a h IH] using rev_ind; auto.
  rewrite replay_snoc; unfold write; simpl.
  rewrite map_app, app_length, seq_app, IH, positions_sequence.
  assert (head (opened (replay h)) = length (log (replay h))) as ->.
  { unfold head, head_of; simpl; rewrite IH, last_seq; now destruct (length _). }
  replace (length (sequence _ _)) with (length (events a)); auto.
  rewrite <- (map_length position), positions_sequence; now rewrite seq_length.
Qed.
