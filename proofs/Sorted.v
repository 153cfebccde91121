(** Sets of strings in their canonical order.

    Python holds tags and types in frozensets and calls [sorted] where an order
    is needed.  Here a set is any list, in any order and with any repetitions,
    and [sorted] gives its one canonical form: strictly increasing.  Strings
    are sequences of bytes compared from the left.  Python compares strings by
    code point, and UTF-8 was made so that the two orders agree. *)

From Coq Require Import String List Sorting.Sorted RelationClasses.
From Coq Require Import Structures.OrdersEx.
Import ListNotations.

Notation before := String_as_OT.lt.

Lemma never_before_itself x : ~ before x x.
Proof. intros H; now apply irreflexivity in H. Qed.

(** Python's [sorted] of a set: insertion sort which drops what is there. *)
Fixpoint insert (x : string) (l : list string) : list string :=
  match l with
  | [] => [x]
  | y :: rest =>
      match String_as_OT.compare x y with
      | Lt => x :: l
      | Eq => l
      | Gt => y :: insert x rest
      end
  end.

Definition sorted (l : list string) : list string := fold_right insert [] l.

Lemma in_insert x y l : In y (insert x l) <-> y = x \/ In y l.
Proof.
  induction l as [|z l IH]; simpl.
  - intuition.
  - destruct (String_as_OT.compare_spec x z); simpl.
    + unfold String_as_OT.eq in *; subst; intuition.
    + intuition.
    + rewrite IH; intuition.
Qed.

(** Sorting changes the order and the repetitions, never the set. *)
Lemma in_sorted x l : In x (sorted l) <-> In x l.
Proof.
  induction l as [|y l IH]; simpl; [tauto|].
  rewrite in_insert, IH; intuition.
Qed.

Lemma insert_increases x l :
  StronglySorted before l -> StronglySorted before (insert x l).
Proof.
  induction l as [|y l IH]; simpl; intros S.
  - repeat constructor.
  - apply StronglySorted_inv in S as [S above].
    destruct (String_as_OT.compare_spec x y) as [E|L|G].
    + now constructor.
    + constructor; [now constructor|].
      constructor; [assumption|].
      eapply Forall_impl; [|exact above].
      intros z; now transitivity y.
    + constructor; [now apply IH|].
      rewrite Forall_forall in *; intros z.
      rewrite in_insert; intros [->|]; auto.
Qed.

Lemma sorted_increases l : StronglySorted before (sorted l).
Proof. induction l; simpl; [constructor | now apply insert_increases]. Qed.

Lemma increasing_nodup l : StronglySorted before l -> NoDup l.
Proof.
  induction 1 as [|x l S IH above]; constructor; auto.
  rewrite Forall_forall in above.
  intros I; apply (never_before_itself x); auto.
Qed.

Lemma sorted_nodup l : NoDup (sorted l).
Proof. apply increasing_nodup, sorted_increases. Qed.

Lemma sorted_nil l : sorted l = [] -> l = [].
Proof.
  destruct l as [|x l]; intros E; [reflexivity|].
  assert (In x (sorted (x :: l))) as I by (apply in_sorted; now left).
  now rewrite E in I.
Qed.

(** The canonical form is a function of the set alone: two lists with the same
    members sort to the same list.  Buckets can therefore be compared with
    plain equality. *)
Theorem sorted_canonical l m :
  (forall x, In x l <-> In x m) -> sorted l = sorted m.
Proof.
  intros same.
  assert (forall x, In x (sorted l) <-> In x (sorted m)) as same'
    by (intros x; now rewrite !in_sorted).
  generalize (sorted_increases l) (sorted_increases m) same'.
  generalize (sorted l) (sorted m); clear.
  induction l as [|x l IH]; intros [|y m] Sl Sm same; auto.
  - exfalso; apply (proj2 (same y)); now left.
  - exfalso; apply (proj1 (same x)); now left.
  - apply StronglySorted_inv in Sl as [Sl Al]; apply StronglySorted_inv in Sm as [Sm Am].
    rewrite Forall_forall in Al, Am.
    assert (x = y) as ->.
    { destruct (proj1 (same x) (or_introl eq_refl)) as [|Ix]; [congruence|].
      destruct (proj2 (same y) (or_introl eq_refl)) as [|Iy]; [congruence|].
      exfalso; apply (never_before_itself x).
      transitivity y; auto. }
    f_equal; apply IH; auto.
    intros z; split; intros I.
    + destruct (proj1 (same z) (or_intror I)) as [<-|]; auto.
      exfalso; apply (never_before_itself y); auto.
    + destruct (proj2 (same z) (or_intror I)) as [<-|]; auto.
      exfalso; apply (never_before_itself y); auto.
Qed.
