(* The serve workload of docs/targets.md. OCaml's standard library has no HTTP server: this is the least of
   HTTP that answers a GET, with a thread for each connection. A backend is asked likewise; its connections
   are kept, and one that is free serves whichever request comes next. *)

let orders =
  List.filter_map
    (fun argument ->
      Option.map
        (fun at ->
          ( String.sub argument 0 at,
            String.sub argument (at + 1) (String.length argument - at - 1) ))
        (String.index_opt argument '='))
    (List.tl (Array.to_list Sys.argv))

let order key = Option.value (List.assoc_opt key orders) ~default:""

(* A line, without its end. *)
let line input =
  let line = input_line input in
  let last = String.length line - 1 in
  if last >= 0 && line.[last] = '\r' then String.sub line 0 last else line

let rec fields input =
  match line input with "" -> [] | field -> field :: fields input

let streams socket =
  Unix.setsockopt socket Unix.TCP_NODELAY true;
  (Unix.in_channel_of_descr socket, Unix.out_channel_of_descr socket)

let send output text =
  output_string output text;
  flush output

(* Connections to the backend that are free. *)
let free = Stack.create ()
let free_lock = Mutex.create ()

let connect host =
  let at = String.index host ':' in
  let address = Unix.inet_addr_of_string (String.sub host 0 at) in
  let port = int_of_string (String.sub host (at + 1) (String.length host - at - 1)) in
  let socket = Unix.socket Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.connect socket (Unix.ADDR_INET (address, port));
  streams socket

let length_of fields =
  let value field =
    match String.index_opt field ':' with
    | Some at when String.lowercase_ascii (String.sub field 0 at) = "content-length" ->
        Some (int_of_string (String.trim (String.sub field (at + 1) (String.length field - at - 1))))
    | _ -> None
  in
  List.find_map value fields

let ask host target =
  Mutex.lock free_lock;
  let kept = Stack.pop_opt free in
  Mutex.unlock free_lock;
  let ((input, output) as connection) = match kept with Some kept -> kept | None -> connect host in
  send output (Printf.sprintf "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" target host);
  let status = line input in
  let length = length_of (fields input) in
  match (String.split_on_char ' ' status, length) with
  | _ :: "200" :: _, Some length ->
      let body = really_input_string input length in
      Mutex.lock free_lock;
      Stack.push connection free;
      Mutex.unlock free_lock;
      body
  | _ -> failwith ("the backend answered " ^ status)

let attend backend socket =
  let input, output = streams socket in
  (try
     while true do
       let target = List.nth (String.split_on_char ' ' (line input)) 1 in
       ignore (fields input);
       let body =
         match backend with
         | Some host -> ask host target
         | None -> "carefree " ^ target ^ "\n"
       in
       send output
         (Printf.sprintf "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
            (String.length body) body)
     done
   with End_of_file | Sys_error _ -> (* the client has closed *) ());
  close_in_noerr input

let serve backend =
  let listener = Unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.bind listener (Unix.ADDR_INET (Unix.inet_addr_loopback, 0));
  Unix.listen listener 1024;
  let port = match Unix.getsockname listener with Unix.ADDR_INET (_, port) -> port | _ -> 0 in
  ignore
    (Thread.create
       (fun () ->
         while true do
           let socket, _ = Unix.accept ~cloexec:true listener in
           ignore (Thread.create (attend backend) socket)
         done)
       ());
  Printf.printf "{\"phase\":\"serving\",\"port\":%d}\n%!" port;
  ignore (In_channel.input_line stdin)

let () =
  (* A client that has closed is an error to be told of, not the end. *)
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  match
    match (order "kind", order "unit") with
    | "plain", "thread" -> serve None
    | "backend", "thread" ->
        let url = order "backend" in
        let scheme = String.length "http://" in
        serve (Some (String.sub url scheme (String.length url - scheme)))
    | kind, "thread" -> failwith (Printf.sprintf "there is no kind '%s' of servers here" kind)
    | _, unit -> failwith (Printf.sprintf "there is no unit '%s'; the unit is thread" unit)
  with
  | () ->
      print_endline
        "{\"sample\":{\"units\":1,\"switches_asked\":0,\"switches_made\":0,\"rounds\":[]}}";
      (* Without waiting for the threads of clients that have not closed. *)
      Unix._exit 0
  | exception error ->
      let told = match error with Failure told -> told | error -> Printexc.to_string error in
      Printf.printf "{\"failure\":{\"message\":%S}}\n%!" told;
      Unix._exit 1
