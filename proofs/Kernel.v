(** The conflict kernel: which events can spoil which decisions.

    The definitions are those of buckets.py under the same names.  [Matches] is
    the rule as a reader would say it; [matches] is the rule as it is computed;
    [write_buckets] and [read_targets] turn it into an equality of keys.  The
    theorem [exact] says that all of them agree.  [read_targets] is a function
    of the query alone and [write_buckets] of the event alone: neither side
    needs to see the other. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Subsets.
Import ListNotations.

(** Sets of strings are lists, in any order and with any repetitions.  Data and
    metadata decide nothing, so they are left out. *)
Record Event := { type : string; tags : list string; id : option string }.

(** What a store gives back: an event with its position. *)
Record SequencedEvent := { position : nat; event : Event }.

Record QueryItem := { types : list string; item_tags : list string }.

Definition Query := list QueryItem.

Record AppendCondition := { fail_if_events_match : Query; after : nat }.

(** The rule.  An item matches an event whose type is one of its types, or any
    when it names none, and which has all of its tags. *)
Definition ItemMatches (e : Event) (i : QueryItem) : Prop :=
  (types i = [] \/ In (type e) (types i)) /\ incl (item_tags i) (tags e).

Definition Matches (e : Event) (q : Query) : Prop :=
  exists i, In i q /\ ItemMatches e i.

(** An event spoils a condition when it comes after what the condition's
    decision has read, and matches its query. *)
Definition Spoils (s : SequencedEvent) (c : AppendCondition) : Prop :=
  after c < position s /\ Matches (event s) (fail_if_events_match c).

(** The rule, computed. *)
Definition member (x : string) (l : list string) : bool := existsb (String.eqb x) l.

Definition item_matches (e : Event) (i : QueryItem) : bool :=
  (match types i with [] => true | _ => member (type e) (types i) end)
  && forallb (fun tag => member tag (tags e)) (item_tags i).

Definition matches (e : Event) (q : Query) : bool := existsb (item_matches e) q.

Definition spoils (s : SequencedEvent) (c : AppendCondition) : bool :=
  (after c <? position s) && matches (event s) (fail_if_events_match c).

(** Buckets: a canonical list of tags and a type, or [ANY]. *)
Definition ANY : option string := None.

Definition Bucket : Type := list string * option string.

Definition buckets_of (subsets : list (list string)) (e : Event) : list Bucket :=
  flat_map (fun ts => [(ts, Some (type e)); (ts, ANY)]) subsets.

Definition write_buckets (e : Event) : list Bucket :=
  buckets_of (subsets (sorted (tags e))) e.

(** In Python this is [write_buckets(event, up_to=k)]. *)
Definition write_buckets_up_to (k : nat) (e : Event) : list Bucket :=
  buckets_of (subsets_up_to k (sorted (tags e))) e.

Definition item_targets (i : QueryItem) : list Bucket :=
  match sorted (types i) with
  | [] => [(sorted (item_tags i), ANY)]
  | ts => map (fun t => (sorted (item_tags i), Some t)) ts
  end.

Definition read_targets (q : Query) : list Bucket := flat_map item_targets q.

(** Two lists meet when they have a member in common. *)
Definition meet {A} (l m : list A) : Prop := exists x, In x l /\ In x m.

(** The computed rule is the rule. *)
Lemma member_iff x l : member x l = true <-> In x l.
Proof.
  unfold member; rewrite existsb_exists; split.
  - intros [y [I E]]; apply String.eqb_eq in E; now subst.
  - intros I; exists x; split; [assumption | now apply String.eqb_eq].
Qed.

Lemma item_matches_iff e i : item_matches e i = true <-> ItemMatches e i.
Proof.
  unfold item_matches, ItemMatches, incl.
  rewrite andb_true_iff, forallb_forall.
  setoid_rewrite member_iff.
  destruct (types i) as [|t ts]; [tauto|].
  rewrite member_iff; intuition discriminate.
Qed.

Theorem matches_iff e q : matches e q = true <-> Matches e q.
Proof.
  unfold matches, Matches; rewrite existsb_exists.
  split; intros [i [I M]]; exists i; split; auto; now apply item_matches_iff.
Qed.

Theorem spoils_iff s c : spoils s c = true <-> Spoils s c.
Proof.
  unfold spoils, Spoils; now rewrite andb_true_iff, Nat.ltb_lt, matches_iff.
Qed.

(** What is in the buckets. *)
Lemma in_buckets_of subsets e ts t :
  In (ts, t) (buckets_of subsets e) <-> In ts subsets /\ (t = Some (type e) \/ t = ANY).
Proof.
  unfold buckets_of; rewrite in_flat_map; simpl; split.
  - intros [s [I [E|[E|[]]]]]; injection E as -> <-; auto.
  - intros [I [-> | ->]]; exists ts; auto.
Qed.

Lemma in_item_targets i ts t :
  In (ts, t) (item_targets i) <->
  ts = sorted (item_tags i) /\
  match t with None => types i = [] | Some t => In t (types i) end.
Proof.
  unfold item_targets, ANY.
  destruct (sorted (types i)) as [|first rest] eqn:E.
  - apply sorted_nil in E; rewrite E; simpl; split.
    + intros [H|[]]; injection H as <- <-; auto.
    + destruct t; intros [-> H]; [contradiction | now left].
  - assert (types i <> []) as some by (intros H; rewrite H in E; discriminate).
    rewrite <- E, in_map_iff; split.
    + intros [x [H I]]; injection H as <- <-.
      split; [reflexivity | now apply in_sorted].
    + destruct t as [t|]; intros [-> H]; [|contradiction].
      exists t; split; [reflexivity | now apply in_sorted].
Qed.

(** One item and any choice of subsets: they meet exactly when the item matches
    and its tags were chosen. *)
Lemma item_meets subsets e i :
  (forall ts, In ts subsets -> subsequence ts (sorted (tags e))) ->
  meet (buckets_of subsets e) (item_targets i) <->
  ItemMatches e i /\ In (sorted (item_tags i)) subsets.
Proof.
  intros sound; unfold ItemMatches; split.
  - intros [[ts t] [W R]].
    apply in_buckets_of in W as [W T]; apply in_item_targets in R as [-> R].
    repeat split; auto.
    + destruct T; subst t; auto.
    + now apply subsequence_sorted, sound.
  - intros [[T I] C].
    destruct T as [T|T].
    + exists (sorted (item_tags i), ANY).
      rewrite in_buckets_of, in_item_targets; simpl; auto.
    + exists (sorted (item_tags i), Some (type e)).
      rewrite in_buckets_of, in_item_targets; auto.
Qed.

Lemma item_exact e i :
  ItemMatches e i <-> meet (write_buckets e) (item_targets i).
Proof.
  unfold write_buckets; rewrite item_meets by (intros ts; now rewrite in_subsets).
  rewrite in_subsets, subsequence_sorted; unfold ItemMatches; tauto.
Qed.

Lemma meet_read_targets buckets q :
  meet buckets (read_targets q) <-> exists i, In i q /\ meet buckets (item_targets i).
Proof.
  unfold meet, read_targets; split.
  - intros [b [W R]]; apply in_flat_map in R as [i [I R]]; eauto.
  - intros [i [I [b [W R]]]]; exists b; split; auto; apply in_flat_map; eauto.
Qed.

Lemma matches_exactly e q : Matches e q <-> meet (write_buckets e) (read_targets q).
Proof.
  rewrite meet_read_targets; unfold Matches.
  now setoid_rewrite item_exact.
Qed.

(** The theorem on which everything rests: an event spoils a condition exactly
    when it comes after, and one of its write buckets is a read target. *)
Theorem exact s c :
  Spoils s c <->
  after c < position s /\ meet (write_buckets (event s)) (read_targets (fail_if_events_match c)).
Proof. unfold Spoils; now rewrite matches_exactly. Qed.

(** No conflict is missed. *)
Corollary completeness s c :
  Spoils s c -> meet (write_buckets (event s)) (read_targets (fail_if_events_match c)).
Proof. intros H; now apply exact in H. Qed.

(** And none is invented. *)
Corollary precision s c :
  after c < position s ->
  meet (write_buckets (event s)) (read_targets (fail_if_events_match c)) ->
  Spoils s c.
Proof. intros; now apply exact. Qed.

(** Writing fewer buckets is as good when no item names more than [k] tags. *)
Theorem exact_up_to k s c :
  (forall i, In i (fail_if_events_match c) -> length (sorted (item_tags i)) <= k) ->
  Spoils s c <->
  after c < position s /\
  meet (write_buckets_up_to k (event s)) (read_targets (fail_if_events_match c)).
Proof.
  intros few; unfold Spoils, Matches, write_buckets_up_to; rewrite meet_read_targets.
  assert (forall i, In i (fail_if_events_match c) ->
    ItemMatches (event s) i <->
    meet (buckets_of (subsets_up_to k (sorted (tags (event s)))) (event s)) (item_targets i)) as each.
  { intros i I; rewrite item_meets by (intros ts; rewrite in_subsets_up_to; tauto).
    rewrite in_subsets_up_to, subsequence_sorted.
    specialize (few i I); unfold ItemMatches; tauto. }
  split; intros [A [i [I M]]]; split; auto; exists i; split; auto; now apply each.
Qed.

(** The price: two buckets for each subset of the tags, and all of them
    different. *)
Theorem bucket_count e :
  NoDup (write_buckets e) /\
  length (write_buckets e) = 2 * 2 ^ length (sorted (tags e)).
Proof.
  unfold write_buckets; split.
  - generalize (nodup_subsets _ (sorted_nodup (tags e))).
    generalize (subsets (sorted (tags e))); clear.
    induction l as [|ts l IH]; intros N; simpl; [constructor|].
    inversion N; subst.
    assert (forall t, ~ In (ts, t) (buckets_of l e)) as fresh
      by (intros t I; apply in_buckets_of in I; tauto).
    unfold buckets_of, ANY in *; repeat constructor; auto.
    intros [E|I]; [discriminate | now apply fresh in I].
  - rewrite <- count_subsets; generalize (subsets (sorted (tags e))); clear.
    induction l; simpl in *; lia.
Qed.

(** An item that names neither types nor tags matches every event. *)
Theorem empty_item_matches_everything e q :
  In {| types := []; item_tags := [] |} q -> Matches e q.
Proof.
  intros I; eexists; split; [exact I|].
  split; [now left | intros x []].
Qed.

(** Only the set of tags counts, not the order or the repetitions in which it
    was given. *)
Theorem write_buckets_of_a_set e f :
  type e = type f -> (forall x, In x (tags e) <-> In x (tags f)) ->
  write_buckets e = write_buckets f.
Proof.
  intros T S; unfold write_buckets, buckets_of.
  now rewrite (sorted_canonical _ _ S), T.
Qed.
