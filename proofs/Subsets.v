(** All subsets of a list, by size, in the order of Python's itertools.

    [combinations] and [subsets] are the functions of the same name in Python.
    What the rest of the development needs of them: [subsets] of a list holds
    exactly its subsequences, each once, and there are 2 to the length of
    them. *)

From Coq Require Import String List Arith Lia Sorting.Sorted RelationClasses Logic.FinFun.
From Fencepost Require Import Sorted.
Import ListNotations.

Section Subsets.
Context {A : Type}.

Fixpoint combinations (size : nat) (l : list A) : list (list A) :=
  match size, l with
  | 0, _ => [[]]
  | S _, [] => []
  | S smaller, x :: rest => map (cons x) (combinations smaller rest) ++ combinations size rest
  end.

(** Only the subsets of up to [k] members; [subsets] takes them all. *)
Definition subsets_up_to (k : nat) (l : list A) : list (list A) :=
  flat_map (fun size => combinations size l) (seq 0 (S (min k (length l)))).

Definition subsets (l : list A) : list (list A) :=
  flat_map (fun size => combinations size l) (seq 0 (S (length l))).

Inductive subsequence : list A -> list A -> Prop :=
| subsequence_nil l : subsequence [] l
| subsequence_take x s l : subsequence s l -> subsequence (x :: s) (x :: l)
| subsequence_skip x s l : subsequence s l -> subsequence s (x :: l).

Lemma subsequence_length s l : subsequence s l -> length s <= length l.
Proof. induction 1; simpl; lia. Qed.

Lemma subsequence_incl s l : subsequence s l -> incl s l.
Proof.
  induction 1; intros y; simpl; [tauto | |]; intuition.
Qed.

Lemma in_combinations size l s :
  In s (combinations size l) <-> subsequence s l /\ length s = size.
Proof.
  revert size s; induction l as [|x l IH]; intros [|size] s; simpl.
  - split; [intros [<-|[]]; split; auto; constructor|].
    intros [_ L]; left; symmetry; now apply length_zero_iff_nil.
  - split; [tauto|]. intros [H L]; inversion H; subst; discriminate.
  - split; [intros [<-|[]]; split; auto; constructor|].
    intros [_ L]; left; symmetry; now apply length_zero_iff_nil.
  - rewrite in_app_iff, in_map_iff; split.
    + intros [[t [<- I]]|I]; apply IH in I as [H L].
      * split; [now constructor | simpl; now rewrite L].
      * split; [now constructor | assumption].
    + intros [H L]; inversion H; subst; try discriminate.
      * left; eexists; split; [reflexivity|]; apply IH; auto.
      * right; apply IH; auto.
Qed.

Theorem in_subsets_up_to k l s :
  In s (subsets_up_to k l) <-> subsequence s l /\ length s <= k.
Proof.
  unfold subsets_up_to; rewrite in_flat_map; split.
  - intros [size [I H]]; apply in_seq in I; apply in_combinations in H as [H L].
    split; [assumption | lia].
  - intros [H L]; exists (length s).
    rewrite in_seq, in_combinations.
    apply subsequence_length in H as L'; repeat split; auto; lia.
Qed.

Theorem in_subsets l s : In s (subsets l) <-> subsequence s l.
Proof.
  unfold subsets; rewrite in_flat_map; split.
  - intros [size [_ H]]; now apply in_combinations in H.
  - intros H; exists (length s); rewrite in_seq, in_combinations.
    apply subsequence_length in H as L; repeat split; auto; lia.
Qed.

Lemma none_named (l : list A) : combinations 0 l = [[]].
Proof. now destruct l. Qed.

Lemma none_of_nothing start n :
  flat_map (fun size => combinations size (@nil A)) (seq (S start) n) = [].
Proof. revert start; induction n as [|n IH]; intros start; simpl; auto. Qed.

(** Pascal's rule, summed over the sizes, is the doubling. *)
Lemma count_sizes sizes l :
  length l < sizes ->
  length (flat_map (fun size => combinations size l) (seq 0 sizes)) = 2 ^ length l.
Proof.
  assert (forall start x l n,
    length (flat_map (fun size => combinations size (x :: l)) (seq (S start) n)) =
    length (flat_map (fun size => combinations size l) (seq start n)) +
    length (flat_map (fun size => combinations size l) (seq (S start) n))) as pascal.
  { clear; intros start x l n; revert start; induction n as [|n IH]; intros start; simpl; auto.
    rewrite !app_length, map_length, IH; simpl; lia. }
  revert sizes; induction l as [|x l IH]; intros [|sizes] L; simpl in L; try lia.
  - simpl; now rewrite none_of_nothing.
  - assert (length l < sizes) as L' by lia.
    pose proof (IH (S sizes) ltac:(lia)) as IHS; specialize (IH sizes L').
    cbn [seq flat_map] in IHS |- *.
    rewrite app_length in IHS |- *; rewrite pascal.
    rewrite none_named in IHS |- *; simpl in IHS |- *; lia.
Qed.

Theorem count_subsets l : length (subsets l) = 2 ^ length l.
Proof. apply count_sizes; lia. Qed.

Lemma nodup_app (l m : list (list A)) :
  NoDup l -> NoDup m -> (forall x, In x l -> ~ In x m) -> NoDup (l ++ m).
Proof.
  induction l as [|x l IH]; simpl; auto; intros Nl Nm apart.
  inversion Nl; subst; constructor.
  - rewrite in_app_iff; intros [|]; auto; eapply apart; eauto.
  - apply IH; auto.
Qed.

Lemma nodup_combinations size l : NoDup l -> NoDup (combinations size l).
Proof.
  revert size; induction l as [|x l IH]; intros [|size] N; simpl.
  1-3: repeat constructor; simpl; tauto.
  inversion N; subst; apply nodup_app.
  - apply Injective_map_NoDup; [intros s t E; congruence | auto].
  - auto.
  - intros s Is It; apply in_map_iff in Is as [t [<- _]].
    apply in_combinations in It as [H _].
    apply subsequence_incl in H; auto with datatypes.
Qed.

Theorem nodup_subsets l : NoDup l -> NoDup (subsets l).
Proof.
  intros N; unfold subsets; generalize 0, (S (length l)); intros start n.
  revert start; induction n as [|n IH]; intros start; simpl; [constructor|].
  apply nodup_app; auto using nodup_combinations.
  intros s I J; apply in_combinations in I as [_ L].
  apply in_flat_map in J as [size [J K]].
  apply in_seq in J; apply in_combinations in K as [_ L']; lia.
Qed.

End Subsets.

(** Among canonical lists, to be a subsequence is to be a subset.  This is why
    a bucket can be found by equality. *)
Theorem subsequence_sorted s l :
  subsequence (sorted s) (sorted l) <-> incl s l.
Proof.
  split.
  - intros H x I; apply in_sorted, (subsequence_incl _ _ H); now apply in_sorted.
  - intros I.
    assert (incl (sorted s) (sorted l)) as I'
      by (intros x; rewrite !in_sorted; apply I).
    generalize (sorted_increases s) (sorted_increases l) I'.
    generalize (sorted s) (sorted l); clear.
    intros s l; revert s; induction l as [|y l IH]; intros [|x s] Ss Sl I.
    1, 3: apply subsequence_nil.
    + exfalso; apply (I x); now left.
    + apply StronglySorted_inv in Ss as [Ss As]; apply StronglySorted_inv in Sl as [Sl Al].
      rewrite Forall_forall in As, Al.
      destruct (I x (or_introl eq_refl)) as [<-|Ix].
      * apply subsequence_take, IH; auto.
        intros z Iz; destruct (I z (or_intror Iz)) as [<-|]; auto.
        exfalso; apply (never_before_itself y); auto.
      * apply subsequence_skip, IH; auto.
        { constructor; auto; now apply Forall_forall. }
        intros z Iz; destruct (I z Iz) as [<-|]; auto.
        exfalso; apply (never_before_itself y).
        destruct Iz as [->|Iz]; auto.
        transitivity x; auto.
Qed.
