(** Decisions: read, decide, append under the condition that nothing has
    changed.

    A decision reads the events that match a query, may read again depending on
    what it saw, and ends with the events that it wants to append.  Many run at
    once and each of their reads sees the log of its own moment.  The append
    carries one condition for each read: its query, and the head at the time.
    That is enough for the outcome to be serial, in the order of the
    positions; and no weaker rule would do, since a store cannot look into a
    decision. *)

From Coq Require Import String List Bool Arith Lia.
From Fencepost Require Import Sorted Kernel Commit Histories.
Import ListNotations.

Inductive Decision :=
| Decided (es : list Event)
| Read (q : Query) (next : list SequencedEvent -> Decision).

(** What a read returns: all that matches, up to a position. *)
Definition read (log : list SequencedEvent) (q : Query) (up_to : nat) : list SequencedEvent :=
  filter (fun s => (position s <=? up_to) && matches (event s) q) log.

Definition read_all (log : list SequencedEvent) (q : Query) : list SequencedEvent :=
  filter (fun s => matches (event s) q) log.

(** A decision that runs alone: the log does not change between its reads. *)
Fixpoint outcome (log : list SequencedEvent) (d : Decision) : list Event :=
  match d with
  | Decided es => es
  | Read q next => outcome log (next (read_all log q))
  end.

Definition conditioned (es : list Event) (cs : list AppendCondition) : Append :=
  {| events := es; conditions := cs; unless := None; checkpoint := None |}.

(** Decisions one after another, each alone with the store.  Nothing is checked
    here, since there is nobody to conflict with. *)
Definition decide_alone (st : Store) (d : Decision) : Store :=
  write st (conditioned (outcome (log st) d) []).

Definition serially (ds : list Decision) : Store := fold_left decide_alone ds nothing.

(** Decisions at the same time.  One that runs has its beginning, the conditions
    that it has gathered, and what is left of it to do. *)
Record Running := {
  decision : Decision;
  gathered : list AppendCondition;
  remaining : Decision;
}.

Record World := { store : Store; running : list Running; decided : list Decision }.

Definition now (st : Store) : nat := head (opened st).

(** Any decision may start at any time; any running one may read, append or be
    refused next.  A decision that is refused is gone; to retry is to start
    again. *)
Inductive Step : World -> World -> Prop :=
| starts st rs ds d :
    Step {| store := st; running := rs; decided := ds |}
         {| store := st; running := {| decision := d; gathered := []; remaining := d |} :: rs;
            decided := ds |}
| reads st before rest ds d cs q next :
    Step {| store := st;
            running := before ++ {| decision := d; gathered := cs; remaining := Read q next |} :: rest;
            decided := ds |}
         {| store := st;
            running := before ++ {| decision := d;
                                    gathered := cs ++ [{| fail_if_events_match := q; after := now st |}];
                                    remaining := next (read_all (log st) q) |} :: rest;
            decided := ds |}
| appends st before rest ds d cs es l v :
    judge (opened st) (conditioned es cs) = (v, l) ->
    written v = true ->
    Step {| store := st;
            running := before ++ {| decision := d; gathered := cs; remaining := Decided es |} :: rest;
            decided := ds |}
         {| store := commit l; running := before ++ rest; decided := ds ++ [d] |}
| is_refused st before rest ds d cs es l v :
    judge (opened st) (conditioned es cs) = (v, l) ->
    written v = false ->
    Step {| store := st;
            running := before ++ {| decision := d; gathered := cs; remaining := Decided es |} :: rest;
            decided := ds |}
         {| store := commit l; running := before ++ rest; decided := ds |}.

Inductive Reachable : World -> Prop :=
| at_first : Reachable {| store := nothing; running := []; decided := [] |}
| and_then w w' : Reachable w -> Step w w' -> Reachable w'.

(** [Reached st d cs d']: reading at the heads that the conditions name, all of
    them heads of the past, leads from [d] to [d']. *)
Inductive Reached (st : Store) : Decision -> list AppendCondition -> Decision -> Prop :=
| reached_here d : Reached st d [] d
| reached_read q next n cs d :
    n <= now st ->
    Reached st (next (read (log st) q n)) cs d ->
    Reached st (Read q next) ({| fail_if_events_match := q; after := n |} :: cs) d.

Lemma sequence_above n es s : In s (sequence n es) -> n < position s.
Proof.
  revert n; induction es as [|e es IH]; intros n; simpl; [tauto|].
  intros [<-|I]; simpl; [lia|]; specialize (IH (S n) I); lia.
Qed.

(** A reader never sees something new at or below a head that it has seen. *)
Lemma read_grows st a q n : n <= now st -> read (log (write st a)) q n = read (log st) q n.
Proof.
  intros L; unfold read, write; simpl.
  rewrite filter_app.
  replace (filter _ (sequence _ _)) with (@nil SequencedEvent); [apply app_nil_r|].
  symmetry; fold (now st).
  assert (forall s, In s (sequence (now st) (events a)) ->
    (position s <=? n) && matches (event s) q = false) as none.
  { intros s I; apply sequence_above in I.
    apply andb_false_iff; left; apply Nat.leb_gt; lia. }
  induction (sequence _ _) as [|s l IH]; simpl; auto.
  rewrite none by now left. apply IH; intros t I; apply none; now right.
Qed.

Lemma head_of_sequence n es : head_of (sequence n es) n = n + length es.
Proof.
  unfold head_of; rewrite positions_sequence, last_seq.
  destruct (length es); lia.
Qed.

Lemma now_write st a : now (write st a) = now st + length (events a).
Proof.
  unfold now at 1, write, head; simpl; rewrite head_of_app.
  fold (head_of (log st) 0); change (head_of (log st) 0) with (now st).
  apply head_of_sequence.
Qed.

Lemma reached_grows st a d cs d' : Reached st d cs d' -> Reached (write st a) d cs d'.
Proof.
  induction 1 as [|q next n cs d L R IH]; [constructor|].
  constructor; [rewrite now_write; lia | now rewrite read_grows].
Qed.

Lemma below_now h s : In s (log (replay h)) -> position s <= now (replay h).
Proof.
  intros I.
  assert (now (replay h) = length (log (replay h))) as ->.
  { unfold now, head, head_of; simpl; rewrite positions_dense, last_seq.
    now destruct (length _). }
  apply (in_map position) in I; rewrite positions_dense in I; apply in_seq in I; lia.
Qed.

Lemma read_now h q : read (log (replay h)) q (now (replay h)) = read_all (log (replay h)) q.
Proof.
  apply filter_ext_in; intros s I; apply below_now, Nat.leb_le in I; now rewrite I.
Qed.

Lemma reached_reads h d cs q next :
  Reached (replay h) d cs (Read q next) ->
  Reached (replay h) d (cs ++ [{| fail_if_events_match := q; after := now (replay h) |}])
          (next (read_all (log (replay h)) q)).
Proof.
  remember (Read q next) as rest eqn:E.
  induction 1 as [|p then_ n cs d L R IH]; subst.
  - constructor; auto; rewrite read_now; constructor.
  - constructor; auto.
Qed.

(** If no condition is spoiled then reading everything now would have returned
    what the reads returned then. *)
Lemma read_unspoiled st q n :
  ~ Spoiled st {| fail_if_events_match := q; after := n |} ->
  read (log st) q n = read_all (log st) q.
Proof.
  intros holds; apply filter_ext_in; intros s I.
  destruct (matches (event s) q) eqn:M; [|apply andb_false_r].
  rewrite andb_true_r; apply Nat.leb_le, Nat.nlt_ge; intros L.
  apply holds; exists s; split; [assumption|].
  split; [assumption | now apply matches_iff].
Qed.

Lemma reached_outcome st d cs d' :
  Reached st d cs d' ->
  (forall c, In c cs -> ~ Spoiled st c) ->
  outcome (log st) d = outcome (log st) d'.
Proof.
  induction 1 as [|q next n cs d L R IH]; intros holds; simpl; auto.
  rewrite <- (read_unspoiled st q n) by (apply holds; now left).
  apply IH; intros c I; apply holds; now right.
Qed.

Lemma judge_is_written st a v l :
  judge (opened st) a = (v, l) -> written v = true ->
  Admissible st a /\ commit l = write st a.
Proof.
  intros J W; pose proof (judge_written st a) as H; rewrite J in H; simpl in H.
  apply H in W; split; [now apply objection_none|].
  unfold judge in J; rewrite W in J; now injection J as <- <-.
Qed.

Lemma judge_is_refused st a v l :
  judge (opened st) a = (v, l) -> written v = false -> commit l = st.
Proof.
  intros J W; pose proof (judge_written st a) as H; rewrite J in H; simpl in H.
  unfold judge in J; destruct (objection (opened st) a).
  - injection J as <- <-; apply commit_opened.
  - rewrite (proj2 H eq_refl) in W; discriminate.
Qed.

Lemma write_ignores_conditions st es cs cs' :
  write st (conditioned es cs) = write st (conditioned es cs').
Proof. reflexivity. Qed.

(** What holds of every reachable world. *)
Record Invariant (w : World) : Prop := {
  is_serial : store w = serially (decided w);
  is_replay : exists h, store w = replay h;
  are_reached : forall r, In r (running w) ->
    Reached (store w) (decision r) (gathered r) (remaining r);
}.

Lemma invariant_holds w : Reachable w -> Invariant w.
Proof.
  induction 1 as [|w w' R IH S].
  - split; simpl; auto; [now exists [] | tauto].
  - destruct IH as [serial [h past] reached].
    destruct S as [st rs ds d | st before rest ds d cs q next
                  | st before rest ds d cs es l v J W | st before rest ds d cs es l v J W];
      simpl in serial, past, reached.
    + split; simpl; eauto.
      intros r [<-|I]; [constructor | auto].
    + split; simpl; eauto.
      intros r I; apply in_app_iff in I as [I|[<-|I]]; simpl.
      * apply reached; auto with datatypes.
      * subst st; rewrite past in *; apply reached_reads.
        apply (reached {| decision := d; gathered := cs; remaining := Read q next |}).
        auto with datatypes.
      * apply reached; auto with datatypes.
    + destruct (judge_is_written _ _ _ _ J W) as [ok ->].
      split; simpl.
      * unfold serially; rewrite fold_left_app; simpl; fold (serially ds).
        rewrite <- serial; unfold decide_alone.
        assert (outcome (log st) d = es) as ->.
        { change es with (outcome (log st) (Decided es)).
          apply reached_outcome with (cs := cs).
          - apply (reached {| decision := d; gathered := cs; remaining := Decided es |}).
            auto with datatypes.
          - apply ok. }
        apply write_ignores_conditions.
      * exists (h ++ [conditioned es cs]); now rewrite replay_snoc, past.
      * intros r I; apply reached_grows, reached.
        apply in_app_iff in I as [I|I]; auto with datatypes.
    + rewrite (judge_is_refused _ _ _ _ J W).
      split; simpl; eauto.
      intros r I; apply reached; apply in_app_iff in I as [I|I]; auto with datatypes.
Qed.

(** Every reachable store is what the decisions that were written would have
    made one after another, each alone, in the order of their positions. *)
Theorem serializable w : Reachable w -> store w = serially (decided w).
Proof. intros R; apply is_serial, invariant_holds, R. Qed.

(** A decision that gathers the given conditions and ends in the given events,
    unless one of its reads shows it the event at [p] which it had not seen. *)
Fixpoint wary (p : nat) (es otherwise : list Event) (cs : list AppendCondition) : Decision :=
  match cs with
  | [] => Decided es
  | c :: rest =>
      Read (fail_if_events_match c) (fun seen =>
        if (after c <? p) && existsb (fun s => position s =? p) seen
        then Decided otherwise
        else wary p es otherwise rest)
  end.

Lemma wary_reached st p es otherwise cs :
  (forall c, In c cs -> after c <= now st) ->
  Reached st (wary p es otherwise cs) cs (Decided es).
Proof.
  induction cs as [|c cs IH]; intros past; simpl; [constructor|].
  rewrite <- (condition_eta c) at 2; constructor; [apply past; now left|].
  destruct (Nat.ltb_spec (after c) p) as [L|L]; simpl.
  - destruct (existsb _ _) eqn:E; [exfalso|].
    + apply existsb_exists in E as [s [I E]]; apply Nat.eqb_eq in E.
      apply filter_In in I as [_ I]; apply andb_true_iff in I as [I _].
      apply Nat.leb_le in I; lia.
    + apply IH; intros d I; apply past; now right.
  - apply IH; intros d I; apply past; now right.
Qed.

Lemma wary_outcome l s c es otherwise cs :
  In c cs -> In s l -> Spoils s c ->
  outcome l (wary (position s) es otherwise cs) = otherwise.
Proof.
  intros I J [L M]; induction cs as [|d cs IH]; [easy|].
  simpl; destruct ((after d <? position s) && existsb _ _) eqn:E; auto.
  apply IH; destruct I as [->|I]; auto; exfalso.
  apply andb_false_iff in E as [E|E]; [apply Nat.ltb_ge in E; lia|].
  assert (existsb (fun t => position t =? position s) (read_all l (fail_if_events_match c)) = true) as T.
  { apply existsb_exists; exists s; split; [|now apply Nat.eqb_eq].
    apply filter_In; split; [assumption | now apply matches_iff]. }
  congruence.
Qed.

(** Each refusal has a decision that would have come out differently: it reads
    what the conditions say, at the heads that they say, and ends in the very
    events that were refused; alone with the store as it is now it sees the
    conflicting event, and ends in others.  A store that sees queries and
    events alone cannot rule this decision out, so it must refuse. *)
Theorem aborts_are_necessary st es cs c p :
  (forall d, In d cs -> after d <= now st) ->
  fst (judge (opened st) (conditioned es cs)) = Conflicting c p ->
  exists d s,
    Reached st d cs (Decided es) /\
    In s (log st) /\ position s = p /\ Spoils s c /\ In c cs /\
    outcome (log st) d <> es.
Proof.
  intros past refused.
  assert (judge_conditions (opened st) cs = Some (Conflicting c p)) as C.
  { unfold judge, objection, judge_ids, judge_unless, judge_checkpoint in refused.
    simpl in refused.
    destruct (known _ _) as [|[i n] rest].
    2: { destruct (rev _); discriminate. }
    simpl in refused.
    destruct (judge_conditions (opened st) cs) as [v|]; simpl in refused; [congruence|].
    unfold placed in refused; destruct (events _); discriminate. }
  apply judge_conditions_some in C as [d [s [I [J [S E]]]]].
  injection E as <- ->; rewrite commit_opened in J.
  set (otherwise := {| type := EmptyString; tags := []; id := None |} :: es).
  exists (wary (position s) es otherwise cs), s.
  split; [now apply wary_reached|].
  split; [assumption|]; split; [reflexivity|]; split; [assumption|]; split; [assumption|].
  rewrite (wary_outcome _ s c); auto.
  intros E; apply (f_equal (@length Event)) in E; simpl in E; lia.
Qed.
