-------------------------------- MODULE Large --------------------------------
(* Transfers between wallets, each of two events, that overlap in all ways.  *)
EXTENDS GroupCommit, TLC

LargeAppends == {"withdraw", "pay", "move", "deposit"}
LargeWrites ==
  [a \in LargeAppends |->
    CASE a = "move" -> <<"w1", "w2">>
      [] a = "deposit" -> <<"w2", "w2">>
      [] OTHER -> <<"w1">>]
LargeReads ==
  [a \in LargeAppends |->
    CASE a = "move" -> {"w1", "w2"}
      [] a = "deposit" -> {}
      [] OTHER -> {"w1"}]

\* Processes are alike.  TLC may use this for what must always hold, but not
\* for what must happen in the end.
Alike == Permutations(Processes)
=============================================================================
