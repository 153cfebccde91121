(* The driver of the oracle: one question for each line, one answer for each.

   A line is made of tokens with a space between.  A string is an x and the
   bytes of its UTF-8 in hex, a number is decimal, a list is its length and
   its members, and what may be missing is a list of one or none.

     event      type, tags, ids (none or one)
     item       types, tags
     query      list of items
     condition  after, query
     append     events, conditions, unless (none or one), checkpoint (none or one: name, position)

     kernel EVENT QUERY     matches, write_buckets, read_targets, write_keys, read_keys of each item
     up_to K EVENT           write_buckets_up_to
     batch EVENTS APPENDS   verdicts, head: the events are the log, at positions 1, 2, ...

   Everything that is decided is decided by Kernel, which Coq has written. *)

open Kernel

let rec nat_of_int n = if n = 0 then O else S (nat_of_int (n - 1))
let int_of_nat n = let rec go k = function O -> k | S m -> go (k + 1) m in go 0 n

(* Reading takes tokens from the front of the line. *)
let line = ref []
let token () = match !line with
  | [] -> failwith "the line is too short"
  | first :: rest -> line := rest; first

let number () = int_of_string (token ())
let nat () = nat_of_int (number ())

let text () =
  let hex = token () in
  if hex.[0] <> 'x' then failwith ("not a string: " ^ hex);
  List.init ((String.length hex - 1) / 2)
    (fun i -> Char.chr (int_of_string ("0x" ^ String.sub hex (1 + 2 * i) 2)))

let many read =
  let rec go n = if n = 0 then [] else let first = read () in first :: go (n - 1) in
  go (number ())

let maybe read = match many read with [] -> None | [x] -> Some x | _ -> failwith "more than one"

let event () = let type0 = text () in let tags = many text in { type0; tags; id = maybe text }
let item () = let types = many text in { types; item_tags = many text }
let query () = many item
let condition () = let after = nat () in { after; fail_if_events_match = query () }
let named () = let name = text () in (name, nat ())
let append () =
  let events = many event in
  let conditions = many condition in
  let unless = maybe query in
  { events; conditions; unless; checkpoint = maybe named }

(* Printing gives the same tokens. *)
let out = Buffer.create 4096
let put word = if Buffer.length out > 0 then Buffer.add_char out ' '; Buffer.add_string out word
let put_int n = put (string_of_int n)
let put_nat n = put_int (int_of_nat n)
let put_bool b = put_int (if b then 1 else 0)
let put_text chars =
  put ("x" ^ String.concat "" (List.map (fun c -> Printf.sprintf "%02x" (Char.code c)) chars))
let put_many write l = put_int (List.length l); List.iter write l
let put_maybe write = function None -> put_int 0 | Some x -> put_int 1; write x
let put_bucket (tags, type_) = put_many put_text tags; put_maybe put_text type_
let put_key = function
  | ALL -> put "all"
  | TypeKey t -> put "type"; put_text t
  | TagKey t -> put "tag"; put_text t
let put_item i = put_many put_text i.types; put_many put_text i.item_tags
let put_condition c = put_nat c.after; put_many put_item c.fail_if_events_match
let put_verdict = function
  | Placed (first, last, already) -> put "placed"; put_nat first; put_nat last; put_bool already
  | Conflicting (c, position) -> put "conflicting"; put_condition c; put_nat position
  | Overlapping (stored, position, missing) ->
      put "overlapping"; put_text stored; put_nat position; put_text missing
  | Behind (name, position, current) -> put "behind"; put_text name; put_nat position; put_nat current

let answer () = match token () with
  | "kernel" ->
      let e = event () in
      let q = query () in
      put_bool (matches e q);
      put_many put_bucket (write_buckets e);
      put_many put_bucket (read_targets q);
      put_many put_key (write_keys e);
      put_many (fun i -> put_many put_key (read_keys i)) q
  | "up_to" ->
      let k = nat () in
      put_many put_bucket (write_buckets_up_to k (event ()))
  | "batch" ->
      let log = sequence O (many event) in
      let store = { nothing with log } in
      let verdicts, ledger = grouped (opened store) (many append) in
      put_many put_verdict verdicts;
      put_nat (head ledger)
  | other -> failwith ("not a question: " ^ other)

let () =
  try
    while true do
      line := String.split_on_char ' ' (input_line stdin);
      Buffer.clear out;
      answer ();
      print_endline (Buffer.contents out)
    done
  with End_of_file -> ()
