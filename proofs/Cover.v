(** The linear cover: keys for locks, stores and joins.

    An event writes all, its type and each of its tags; an item reads the
    narrowest keys that every matching event must have written.  The two meet
    whenever the event matches.  They may also meet when it does not, so the
    exact rule has the last word (see CounterExamples). *)

From Coq Require Import String List Lia.
From Fencepost Require Import Sorted Kernel.
Import ListNotations.

Inductive Key := ALL | TypeKey (type : string) | TagKey (tag : string).

Definition write_keys (e : Event) : list Key :=
  ALL :: TypeKey (type e) :: map TagKey (sorted (tags e)).

Definition read_keys (i : QueryItem) : list Key :=
  match sorted (item_tags i), sorted (types i) with
  | tag :: _, _ => [TagKey tag]
  | [], [] => [ALL]
  | [], ts => map TypeKey ts
  end.

Lemma keys_meet e i : ItemMatches e i -> meet (read_keys i) (write_keys e).
Proof.
  intros [T I]; unfold meet, read_keys, write_keys.
  destruct (sorted (item_tags i)) as [|tag rest] eqn:E.
  - destruct (sorted (types i)) as [|first others] eqn:F.
    + exists ALL; simpl; auto.
    + destruct T as [T|T]; [rewrite T in F; discriminate|].
      exists (TypeKey (type e)); rewrite <- F; split.
      * now apply in_map, in_sorted.
      * simpl; auto.
  - exists (TagKey tag); split; [now left|].
    do 2 right; apply in_map, in_sorted, I, in_sorted.
    rewrite E; now left.
Qed.

(** Under any hash of keys, an item and an event that it matches
    have a hash in common.  The identity is such a hash: the keys themselves
    meet. *)
Theorem linear_cover {Hash} (hash : Key -> Hash) e i :
  ItemMatches e i -> meet (map hash (read_keys i)) (map hash (write_keys e)).
Proof.
  intros M; destruct (keys_meet e i M) as [k [R W]].
  exists (hash k); split; now apply in_map.
Qed.

(** It is linear: one key for each tag, and two. *)
Theorem key_count e : length (write_keys e) = 2 + length (sorted (tags e)).
Proof. unfold write_keys; simpl; now rewrite map_length. Qed.
