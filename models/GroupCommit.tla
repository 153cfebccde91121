----------------------------- MODULE GroupCommit -----------------------------
(***************************************************************************)
(* How a store on one file commits, and what crashes can do to it.         *)
(*                                                                         *)
(* Several processes share a log.  In each, a leader takes the appends     *)
(* that wait there as one batch, judges them in order against its view of  *)
(* the log and against the earlier ones of the batch, and writes what is   *)
(* accepted as one transaction after the head that it knows.  If another   *)
(* process has committed meanwhile, the positions collide: it catches up,  *)
(* judges again and retries.  Written frames are synced, then published to *)
(* readers, and only then acknowledged.  A power loss takes the frames     *)
(* that were not synced, perhaps not all of them; when all processes die,  *)
(* the frames stay, synced or not.  Recovery drops the transaction that    *)
(* was torn, and syncs the rest before anybody reads it.  A subscriber is  *)
(* given what is published.                                                *)
(*                                                                         *)
(* `Bugs` plants mistakes, to show that each property can fail.            *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Processes,   \* the processes that share the file
  Appends,     \* the appends that clients make, each once
  Writes,      \* for each append, the tags of its events: one for each, in order
  Reads,       \* for each append, the set of tags that its condition is about
  MaxCrashes,  \* how many kills and power losses there may be
  Bugs         \* the planted mistakes, none in the real protocol

VARIABLES
  disk,       \* the frames that survive a power loss; a frame is one event
  cache,      \* the frames written after them and not yet synced
  stale,      \* what the disk may still hold where the cache is to go
  visible,    \* how many frames are published to readers
  up,         \* FALSE from the end of all processes until recovery
  writer,     \* the process that holds the write lock, or Nobody
  phase,      \* of each process: "idle", "judged", "written", "synced"
  known,      \* of each process: the head up to which its view has caught up
  waiting,    \* of each process: the requests that wait for its leader
  batch,      \* of each process: the requests that its leader has taken
  staged,     \* of each process: the frames that its batch is to write
  submitted,  \* the appends that have been made
  answered,   \* the appends that got a verdict, or whose caller died
  acked,      \* what was promised: the first position of each acknowledged append
  delivered,  \* what the subscriber was given, in order
  crashes     \* how many there were

storage == <<disk, cache, stale, visible, up>>
memory == <<phase, known, waiting, batch, staged>>
clients == <<submitted, answered, acked>>
vars == <<storage, writer, memory, clients, delivered, crashes>>

Nobody == "nobody"
Planted(bug) == bug \in Bugs
Prefix(frames, n) == SubSeq(frames, 1, n)
Least(m, n) == IF m < n THEN m ELSE n
Taken(requests) == {requests[i].append : i \in 1..Len(requests)}

\* The last frame of a transaction carries the mark that makes all of it count.
Committed(frames) ==
  LET marks == {i \in 1..Len(frames) : frames[i].commit}
  IN  Prefix(frames, IF marks = {} THEN 0 ELSE CHOOSE i \in marks : \A j \in marks : j <= i)

Frames == disk \o cache

\* What a reader can see, or would see after recovery.
Log == IF up THEN Prefix(Frames, visible) ELSE Committed(disk)

(***************************************************************************)
(* The judgement, as in proofs/Commit.v, reduced to what the protocol can  *)
(* get wrong: a request is refused if an event after its `after` has one   *)
(* of the tags that it is about.                                           *)
(***************************************************************************)
Spoiled(log, request) ==
  \E i \in (request.after + 1)..Len(log) : log[i].tag \in Reads[request.append]

EventsOf(request) ==
  [part \in 1..Len(Writes[request.append]) |->
    [append |-> request.append, after |-> request.after, part |-> part,
     tag |-> Writes[request.append][part], commit |-> FALSE]]

RECURSIVE Judge(_, _, _)
Judge(view, soFar, requests) ==
  IF requests = <<>> THEN soFar
  ELSE LET request == Head(requests)
           seen == IF Planted("blind batch") THEN view ELSE view \o soFar
       IN  Judge(view,
                 IF Spoiled(seen, request) THEN soFar ELSE soFar \o EventsOf(request),
                 Tail(requests))

Transaction(frames) ==
  [i \in 1..Len(frames) |-> [frames[i] EXCEPT !.commit = (i = Len(frames))]]

Init ==
  /\ disk = <<>> /\ cache = <<>> /\ stale = <<>> /\ visible = 0 /\ up = TRUE
  /\ writer = Nobody
  /\ phase = [p \in Processes |-> "idle"]
  /\ known = [p \in Processes |-> 0]
  /\ waiting = [p \in Processes |-> <<>>]
  /\ batch = [p \in Processes |-> <<>>]
  /\ staged = [p \in Processes |-> <<>>]
  /\ submitted = {} /\ answered = {} /\ acked = {}
  /\ delivered = <<>>
  /\ crashes = 0

(***************************************************************************)
(* A client has read up to the head, and appends under that condition.     *)
(***************************************************************************)
Submit(p, a) ==
  /\ up /\ a \notin submitted
  /\ waiting' = [waiting EXCEPT ![p] = Append(@, [append |-> a, after |-> visible])]
  /\ submitted' = submitted \union {a}
  /\ UNCHANGED <<storage, writer, phase, known, batch, staged, answered, acked, delivered, crashes>>

(***************************************************************************)
(* The leader takes what waits and judges it, without a lock.              *)
(***************************************************************************)
Take(p) ==
  /\ up /\ phase[p] = "idle" /\ waiting[p] # <<>>
  /\ batch' = [batch EXCEPT ![p] = waiting[p]]
  /\ waiting' = [waiting EXCEPT ![p] = <<>>]
  /\ staged' = [staged EXCEPT ![p] = Judge(Prefix(Frames, known[p]), <<>>, waiting[p])]
  /\ phase' = [phase EXCEPT ![p] = "judged"]
  /\ UNCHANGED <<storage, writer, known, clients, delivered, crashes>>

\* A batch of which everything is refused writes nothing.
Refuse(p) ==
  /\ up /\ phase[p] = "judged" /\ staged[p] = <<>>
  /\ answered' = answered \union Taken(batch[p])
  /\ batch' = [batch EXCEPT ![p] = <<>>]
  /\ phase' = [phase EXCEPT ![p] = "idle"]
  /\ UNCHANGED <<storage, writer, known, waiting, staged, submitted, acked, delivered, crashes>>

Collides(p) == known[p] # visible

\* Others have committed: the position is taken.  Catch up, judge again, retry.
CatchUp(p) ==
  /\ up /\ phase[p] = "judged" /\ staged[p] # <<>> /\ writer = Nobody
  /\ Collides(p) /\ ~Planted("no collision")
  /\ known' = [known EXCEPT ![p] = visible]
  /\ IF Planted("no catch-up")
     THEN UNCHANGED staged
     ELSE staged' = [staged EXCEPT ![p] = Judge(Prefix(Frames, visible), <<>>, batch[p])]
  /\ UNCHANGED <<storage, writer, phase, waiting, batch, clients, delivered, crashes>>

\* Acknowledged are the appends of the batch that were staged, at their positions.
Acknowledge(p) ==
  acked' = acked \union
    {[append |-> staged[p][i].append, first |-> known[p] + i] :
      i \in {j \in 1..Len(staged[p]) : staged[p][j].part = 1}}

\* Frames that a killed writer has left after the published ones are overwritten.
Write(p) ==
  LET from == IF Planted("no collision") THEN known[p] ELSE visible
  IN
  /\ up /\ phase[p] = "judged" /\ staged[p] # <<>> /\ writer = Nobody
  /\ ~Collides(p) \/ Planted("no collision")
  /\ writer' = p
  /\ stale' = SubSeq(disk, from + 1, Len(disk))
  /\ disk' = Prefix(disk, Least(from, Len(disk)))
  /\ cache' = Prefix(cache, from - Least(from, Len(disk))) \o Transaction(staged[p])
  /\ phase' = [phase EXCEPT ![p] = "written"]
  /\ IF Planted("early acknowledgement") THEN Acknowledge(p) ELSE UNCHANGED acked
  /\ UNCHANGED <<visible, up, known, waiting, batch, staged, submitted, answered, delivered, crashes>>

Sync(p) ==
  /\ up /\ phase[p] = "written"
  /\ disk' = disk \o cache
  /\ cache' = <<>>
  /\ stale' = <<>>
  /\ phase' = [phase EXCEPT ![p] = "synced"]
  /\ UNCHANGED <<visible, up, writer, known, waiting, batch, staged, clients, delivered, crashes>>

Publish(p) ==
  /\ up /\ phase[p] = "synced"
  /\ visible' = Len(disk)
  /\ known' = [known EXCEPT ![p] = Len(disk)]
  /\ writer' = Nobody
  /\ Acknowledge(p)
  /\ answered' = answered \union Taken(batch[p])
  /\ batch' = [batch EXCEPT ![p] = <<>>]
  /\ staged' = [staged EXCEPT ![p] = <<>>]
  /\ phase' = [phase EXCEPT ![p] = "idle"]
  /\ UNCHANGED <<disk, cache, stale, up, waiting, submitted, delivered, crashes>>

(***************************************************************************)
(* A killed process loses its memory.  What it has written stays in the    *)
(* file, after the published frames, until somebody overwrites it.         *)
(***************************************************************************)
Kill(p) ==
  /\ up /\ crashes < MaxCrashes
  /\ phase[p] # "idle" \/ waiting[p] # <<>>
  /\ crashes' = crashes + 1
  /\ answered' = answered \union Taken(batch[p]) \union Taken(waiting[p])
  /\ phase' = [phase EXCEPT ![p] = "idle"]
  /\ known' = [known EXCEPT ![p] = visible]
  /\ waiting' = [waiting EXCEPT ![p] = <<>>]
  /\ batch' = [batch EXCEPT ![p] = <<>>]
  /\ staged' = [staged EXCEPT ![p] = <<>>]
  /\ writer' = IF writer = p THEN Nobody ELSE writer
  /\ UNCHANGED <<storage, submitted, acked, delivered>>

EverybodyDies ==
  /\ up' = FALSE
  /\ writer' = Nobody
  /\ phase' = [p \in Processes |-> "idle"]
  /\ waiting' = [p \in Processes |-> <<>>]
  /\ batch' = [p \in Processes |-> <<>>]
  /\ staged' = [p \in Processes |-> <<>>]
  /\ answered' = submitted
  /\ crashes' = crashes + 1
  /\ UNCHANGED <<visible, known, submitted, acked, delivered>>

\* The machine goes on, so the file is as it was written; the last write may
\* have been interrupted anywhere.
KillAll ==
  /\ up /\ crashes < MaxCrashes
  /\ EverybodyDies
  /\ \E n \in 0..Len(cache) : cache' = Prefix(cache, n)
  /\ UNCHANGED <<disk, stale>>

\* Of the frames that were not synced any number may have reached the disk;
\* or none of them, and then what was there before is there still.
PowerLoss ==
  /\ crashes < MaxCrashes
  /\ EverybodyDies
  /\ \E tail \in {Prefix(cache, n) : n \in 0..Len(cache)} \union {stale} : disk' = disk \o tail
  /\ cache' = <<>>
  /\ stale' = <<>>

Recover ==
  LET kept == IF Planted("torn transaction kept") THEN Frames ELSE Committed(Frames)
  IN
  /\ ~up
  /\ up' = TRUE
  /\ IF Planted("unsynced recovery")
     THEN /\ disk' = Prefix(kept, Least(Len(disk), Len(kept)))
          /\ cache' = SubSeq(kept, Len(disk) + 1, Len(kept))
     ELSE /\ disk' = kept
          /\ cache' = <<>>
  /\ stale' = <<>>
  /\ visible' = Len(kept)
  /\ known' = [p \in Processes |-> Len(kept)]
  /\ UNCHANGED <<writer, phase, waiting, batch, staged, clients, delivered, crashes>>

(***************************************************************************)
(* The subscriber lives in one of the processes and looks into the file.   *)
(***************************************************************************)
Readable ==
  CASE Planted("unsynced tail read") -> Len(Frames)
    [] Planted("deaf to others") -> known[CHOOSE p \in Processes : TRUE]
    [] OTHER -> visible

Deliver ==
  /\ up /\ Len(delivered) < Readable
  /\ delivered' = Append(delivered, Frames[Len(delivered) + 1])
  /\ UNCHANGED <<storage, writer, memory, clients, crashes>>

Next ==
  \/ \E p \in Processes :
       \/ \E a \in Appends : Submit(p, a)
       \/ Take(p) \/ Refuse(p) \/ CatchUp(p) \/ Write(p) \/ Sync(p) \/ Publish(p) \/ Kill(p)
  \/ KillAll \/ PowerLoss \/ Recover \/ Deliver

Fairness ==
  /\ WF_vars(Recover)
  /\ WF_vars(Deliver)
  /\ \A p \in Processes : WF_vars(Take(p) \/ Refuse(p) \/ CatchUp(p) \/ Write(p) \/ Sync(p) \/ Publish(p))

Spec == Init /\ [][Next]_vars /\ Fairness

(***************************************************************************)
(* The properties.                                                         *)
(***************************************************************************)
Wholly(log, a, first) ==
  \A part \in 1..Len(Writes[a]) :
    LET i == first + part - 1
    IN  i <= Len(log) /\ log[i].append = a /\ log[i].part = part

\* What was acknowledged can be read at the positions that were told, and a
\* power loss at this moment would not change that.
AcknowledgedKept ==
  \A promise \in acked :
    /\ Wholly(Log, promise.append, promise.first)
    /\ Wholly(Committed(disk), promise.append, promise.first)

\* Every append is there whole or not at all, in one piece, and once.
WholeTransactions ==
  LET log == Log
  IN  \A i \in 1..Len(log) :
        /\ Wholly(log, log[i].append, i - log[i].part + 1)
        /\ \A j \in 1..Len(log) :
             log[j].append = log[i].append /\ log[j].part = log[i].part => j = i

\* No event between a condition's `after` and its append spoils it.
ConditionsHold ==
  LET log == Log
  IN  \A i \in 1..Len(log) :
        log[i].part = 1 =>
          \A j \in (log[i].after + 1)..(i - 1) : log[j].tag \notin Reads[log[i].append]

\* The subscriber was given the beginning of the log: nothing is missing, out
\* of order, twice, or gone since.
NoGapDelivered ==
  /\ Len(delivered) <= Len(Log)
  /\ \A i \in 1..Len(delivered) :
       delivered[i].append = Log[i].append /\ delivered[i].part = Log[i].part

\* No position is beyond the number of events that there are to write.
RECURSIVE Total(_)
Total(appends) ==
  IF appends = {} THEN 0
  ELSE LET a == CHOOSE a \in appends : TRUE
       IN  Len(Writes[a]) + Total(appends \ {a})
Positions == 1..Total(Appends)

\* The frame that a position names never changes once it is published.
PublishedStays ==
  [][\A i \in Positions : (i <= visible /\ i <= visible') => Frames[i] = (disk \o cache)'[i]]_vars

\* Whenever the subscriber is behind, it catches up, so everything published
\* is delivered in the end.  There are finitely many appends here, so nobody
\* can keep it behind for ever.
Delivery == Len(delivered) < visible ~> Len(delivered) >= visible

\* And every append is answered, unless its process died.
Answered == answered # submitted ~> answered = submitted
=============================================================================
