-------------------------------- MODULE Small --------------------------------
(* Two withdrawals from one wallet, decided on the same reading, and a       *)
(* deposit of two events that asks for nothing.                              *)
EXTENDS GroupCommit

SmallAppends == {"withdraw", "pay", "deposit"}
SmallWrites == [a \in SmallAppends |-> IF a = "deposit" THEN <<"w1", "w2">> ELSE <<"w1">>]
SmallReads == [a \in SmallAppends |-> IF a = "deposit" THEN {} ELSE {"w1"}]
=============================================================================
