//! A backtrace in words, shortened to what helps to find the place in one's own program.
//!
//! Most functions on a stack are the standard library's or the runtime's: a `collect` alone is ten. Of a row
//! of such functions only the outermost is shown, which the program has called by name, with the number of
//! those within it. What lies around a fiber's own function is not shown.
//!
//! Which code a function belongs to, and where the fiber's own begins, is told by the source *files*. Names do not
//! tell: with line tables only, as in many release builds, a function is called `live` or `{closure#0}`. Nor
//! do addresses: a fiber's first functions are compiled for each type of closure, and may be inlined into
//! each other. Where there are no line tables, the symbol table has whole names, and these tell.

use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;

use super::image::Images;
use super::name::{narrow, without_types};
use super::rooms::{OWN, ROOMS, Rooms};
use super::symbols::{self, Symbol};
use super::unwind::Frame;

/// Functions shown at most: the innermost half and the outermost.
const FUNCTIONS: usize = 32;
/// Characters of a line at most: most terminals are as wide.
const WIDTH: usize = 120;
/// Bytes of a function's name at most; what is longer is taken for damage.
const NAME: usize = 64 * 1024;
/// What stands before each function.
const MARGIN: usize = 6;
/// What stands before each place.
const INDENT: &str = "             at ";

/// Functions on a stack, the innermost first, and the text that their names and files are in.
struct Functions {
    list: Mapped<Function>,
    text: Text,
}

/// A piece of a text, from here to there.
type Piece = (usize, usize);

/// A function on a stack, inlined or not.
#[derive(Clone, Copy, Debug)]
struct Function {
    name: Piece,
    place: Option<(Piece, Option<u32>)>,
    whose: Whose,
    /// A fiber's first function: those around it are not the program's.
    first: bool,
    /// Its name is a place in a file that was stripped of names.
    nameless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The program's, a library's, or it is not known whose.
    Program,
    Std,
    Carefree,
}

/// Adds the functions on a stack by name to `text`. Returns whether some have no names: the program was
/// stripped of them.
pub(super) fn words(frames: &[Frame], images: &mut Images, text: &mut Text) -> bool {
    let functions = functions(frames, images);
    shorten(&functions, text);
    functions.list.iter().any(|function| function.nameless)
}

fn functions(frames: &[Frame], images: &mut Images) -> Functions {
    let mut of = [None; symbols::MOST];
    let mut addresses = [0; symbols::MOST];
    for (index, frame) in frames.iter().enumerate().take(symbols::MOST) {
        of[index] = images.find(frame.address);
        addresses[index] = frame.address;
    }
    let mut paths = Text::new();
    let count = frames.len().min(symbols::MOST);
    let symbols = symbols::look_up(images, &of[..count], &addresses[..count], &mut paths);
    let mut functions = Functions { list: Mapped::new(), text: Text::new() };
    let (mut copy, mut whole) = (Mapped::new(), Text::new());
    for Symbol { index, name, file, line } in symbols.iter().copied() {
        // A copy, for the file may change.
        copy.truncate(0);
        let name = name.filter(|name| name.len() <= NAME && copy.extend(name));
        let Some(name) = name.and_then(|_| std::str::from_utf8(&copy).ok()) else {
            functions.add_place(addresses[index], of[index], images);
            continue;
        };
        whole.truncate(0);
        // Without the hash.
        whole.say(format_args!("{:#}", rustc_demangle::demangle(name)));
        let file = file.map(|(begin, end)| (&paths[begin..end], line));
        if functions.add(&ROOMS, &whole, file).is_none_or(|function| function.first) {
            break;
        }
    }
    functions
}

impl Functions {
    fn say(&mut self, arguments: std::fmt::Arguments<'_>) -> Piece {
        let begin = self.text.len();
        self.text.say(arguments);
        (begin, self.text.len())
    }

    fn get(&self, piece: Piece) -> &str {
        &self.text[piece.0..piece.1]
    }

    /// Adds a function by its name and place; `None` if there is no memory.
    fn add(
        &mut self,
        rooms: &Rooms,
        name: &str,
        place: Option<(&str, Option<u32>)>,
    ) -> Option<Function> {
        let begin = self.text.len();
        without_types(name, &mut self.text);
        let mut name = (begin, self.text.len());
        let file = place.map(|(file, _)| file);
        let room = file.and_then(|file| rooms.locate(file));
        let path = self.get(name).trim_start_matches(['<', '_', '&']);
        let of = |crates: &[&str]| crates.iter().any(|start| path.starts_with(start));
        let whose = match file {
            Some(_) if room.is_some() => Whose::Carefree,
            Some(file) if is_of_std(file) => Whose::Std,
            Some(_) => Whose::Program,
            None if of(&["std::", "core::", "alloc::", "rust_try", "rust_begin_short"]) => {
                Whose::Std
            }
            None if of(&["carefree_", "carefree::"]) => Whose::Carefree,
            None => Whose::Program,
        };
        let last = path.rsplit("::").next().unwrap_or_default();
        let first = room == Some(("runtime", "api/life.rs")) && matches!(last, "live" | "entry")
            || ["api::life::live", "api::life::entry"]
                .iter()
                .any(|first| path.strip_prefix("carefree_runtime::") == Some(first));
        // Line tables have but the last part of a name.
        if whose != Whose::Program
            && (!self.get(name).contains("::") || self.get(name).starts_with('{'))
        {
            let begin = self.text.len();
            if file.and_then(|file| module(file, &mut self.text)).is_some() {
                let last = Text::of(format_args!("::{}", self.get(name)));
                self.text.say(format_args!("{last}"));
                name = (begin, self.text.len());
            } else {
                self.text.truncate(begin);
            }
        }
        // Lines of other code do not help.
        let place = place.filter(|_| whose == Whose::Program);
        let place = place.map(|(file, line)| (self.say(format_args!("{file}")), line));
        let function = Function { name, place, whose, first, nameless: false };
        self.list.push(function).then_some(function)
    }

    /// Adds `program+0x1234`: the file that was loaded at `address` and the place as the file has it,
    /// which is not another one in each run. `addr2line` takes that. It has no name if there is such a
    /// file: the kernel's own code (the vDSO) lies in none.
    fn add_place(&mut self, address: u64, image: Option<usize>, images: &Images) {
        let (name, nameless) = match image {
            None => (self.say(format_args!("{address:#x}")), false),
            Some(image) => {
                let path = images.name(image);
                let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
                let begin = self.text.len();
                file.utf8_chunks()
                    .for_each(|chunk| self.text.say(format_args!("{}", chunk.valid())));
                let place = address.wrapping_sub(images.get(image).bias);
                self.text.say(format_args!("+{place:#x}"));
                ((begin, self.text.len()), path.starts_with(b"/"))
            }
        };
        let (place, whose) = (None, Whose::Program);
        self.list.push(Function { name, place, whose, first: false, nameless });
    }
}

fn is_of_std(file: &str) -> bool {
    // std as it was compiled; with its sources installed; and std's own dependencies.
    file.starts_with("/rustc/")
        || file.contains("/lib/rustlib/src/rust/library/")
        || file.starts_with("/rust/deps/")
}

/// Adds `core::iter::traits::iterator` for `.../core/src/iter/traits/iterator.rs`.
fn module(file: &str, to: &mut Text) -> Option<()> {
    let (package, inner) = file.rsplit_once("/src/")?;
    let package = package.rsplit('/').next()?;
    // Without the version.
    let package = match package.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => package,
    };
    if OWN.contains(&package) {
        to.say(format_args!("carefree_"));
    }
    package.chars().for_each(|letter| to.add(if letter == '-' { '_' } else { letter }));
    let inner = inner.split('/').map(|part| part.trim_end_matches(".rs"));
    for part in inner.filter(|part| !matches!(*part, "mod" | "lib")) {
        to.say(format_args!("::{part}"));
    }
    Some(())
}

/// The functions that one line stands for.
#[derive(Clone, Copy)]
struct Row {
    /// The function that is named.
    shown: usize,
    /// The first of those within it that are not.
    first: usize,
}

/// Adds what is worth a line.
fn shorten(functions: &Functions, text: &mut Text) {
    let list = &*functions.list;
    let end = list.iter().position(|function| function.first).unwrap_or(list.len());
    // Outside the program's outermost function there is what calls a closure.
    let own = list[..end].iter().rposition(|function| function.whose == Whose::Program);
    // Where nothing is the program's, it is not known to be anything else's.
    let list = &list[..own.map_or(end, |own| own + 1)];
    let mut rows = Mapped::new();
    let mut first = 0;
    for shown in 0..list.len() {
        let whose = |at: usize| list.get(at).map(|function| function.whose == Whose::Program);
        if whose(shown) == Some(true) || whose(shown + 1) != Some(false) {
            rows.push(Row { shown, first });
            first = shown + 1;
        }
    }
    let left_out = rows.len().saturating_sub(FUNCTIONS);
    let middle = FUNCTIONS / 2..FUNCTIONS / 2 + left_out;
    let mut index = 0;
    for (at, row) in rows.iter().enumerate() {
        if left_out > 0 && at == middle.start {
            text.say(format_args!("  {index:2}: … ({left_out} more)\n"));
            index += 1;
        }
        if !middle.contains(&at) {
            text.say(format_args!("  {index:2}: "));
            row.write(functions, text);
            index += 1;
        }
    }
}

impl Row {
    fn write(self, functions: &Functions, text: &mut Text) {
        let shown = &functions.list[self.shown];
        let name = functions.get(shown.name);
        if shown.whose != Whose::Program {
            return self.write_with_count(functions, name, text);
        }
        narrow(name, WIDTH - MARGIN, text);
        if let Some((file, line)) = shown.place {
            let file = functions.get(file);
            let place = match line {
                Some(line) => Text::of(format_args!("{file}:{line}")),
                None => Text::of(format_args!("{file}")),
            };
            text.say(format_args!("\n{INDENT}"));
            narrow(&place, WIDTH - INDENT.len(), text);
        }
        text.say(format_args!("\n"));
    }

    /// A function that others called, and how many they were.
    fn write_with_count(self, functions: &Functions, name: &str, text: &mut Text) {
        let within = &functions.list[self.first..self.shown];
        let of = |whose| within.iter().any(|function| function.whose == whose);
        let whose = match (of(Whose::Std), of(Whose::Carefree)) {
            (true, true) => "std and carefree",
            (_, true) => "carefree",
            _ => "std",
        };
        let count = match within.len() {
            0 => Text::new(),
            1 => Text::of(format_args!(" (and 1 frame of {whose} within)")),
            count => Text::of(format_args!(" (and {count} frames of {whose} within)")),
        };
        narrow(name, WIDTH - MARGIN - count.chars().count(), text);
        text.say(format_args!("{count}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rooms::tests::{LIFE, REGISTRY, WORKSPACE};

    const CORE: &str = "/rustc/59807616/library/core/src/";

    /// From names, and files with lines: the lines, without their numbers.
    fn shown(rooms: &Rooms, functions: &[(&str, &str)]) -> Vec<String> {
        let mut list = Functions { list: Mapped::new(), text: Text::new() };
        for (name, file) in functions {
            let place = (!file.is_empty()).then_some((*file, Some(7)));
            list.add(rooms, name, place).unwrap();
        }
        let mut text = Text::new();
        shorten(&list, &mut text);
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            match line.strip_prefix(&format!("  {:2}: ", lines.len())) {
                Some(line) => lines.push(line.to_owned()),
                None => *lines.last_mut().unwrap() += &format!("\n{line}"),
            }
        }
        lines
    }

    /// As an optimized program with line tables has them.
    #[test]
    fn what_is_not_the_programs_is_cut_short() {
        let option = &format!("{CORE}option.rs");
        let iterator = &format!("{CORE}iter/traits/iterator.rs");
        let function = &format!("{CORE}ops/function.rs");
        let lines = shown(
            &WORKSPACE,
            &[
                ("__memcpy", "./string/memmove.S"),
                ("copy<u8>", &format!("{CORE}ptr/mod.rs")),
                ("build", "/home/me/carefree/crates/context/src/tls/block.rs"),
                ("place<shop::{closure_env#0}, ()>", LIFE),
                ("{closure#1}", "/home/me/shop/main.rs"),
                ("map<u8>", option),
                ("fold<R, F>", iterator),
                ("collect<Map<R, F>, Vec<u8>>", iterator),
                ("all_at_once<u8>", "/home/me/shop/main.rs"),
                ("next<u8>", option),
                ("main_fiber", "/home/me/shop/main.rs"),
                ("call_once<F, ()>", function),
                ("{closure#0}<F>", "/home/me/carefree/crates/runtime/src/api/scope.rs"),
                ("catch_unwind<F, ()>", &format!("{CORE}panic.rs")),
                ("live<F, ()>", LIFE),
                ("entry<F, ()>", LIFE),
                ("beyond", "/home/me/shop/main.rs"),
            ],
        );
        assert_eq!(
            lines,
            [
                "__memcpy\n             at ./string/memmove.S:7",
                "carefree_runtime::api::life::place (and 2 frames of std and carefree within)",
                "{closure#1}\n             at /home/me/shop/main.rs:7",
                "core::iter::traits::iterator::collect (and 2 frames of std within)",
                "all_at_once\n             at /home/me/shop/main.rs:7",
                "core::option::next",
                "main_fiber\n             at /home/me/shop/main.rs:7",
            ]
        );
    }

    /// A program's own function of the same name, in its own file of the same name, is not the
    /// runtime's.
    #[test]
    fn the_first_function_is_ours() {
        let lines = shown(
            &WORKSPACE,
            &[("live", "/home/me/shop/src/life.rs"), ("outer", "/home/me/shop/src/life.rs")],
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
    }

    /// Without line tables there are whole names.
    #[test]
    fn names_tell_where_there_are_no_files() {
        for rooms in [WORKSPACE, REGISTRY] {
            let lines = shown(
                &rooms,
                &[
                    ("__nanosleep", ""),
                    ("std::thread::sleep", ""),
                    ("shop::wait", ""),
                    ("0x1234", ""),
                    (
                        "<core::panic::unwind_safe::AssertUnwindSafe<F> as FnOnce<()>>::call_once",
                        "",
                    ),
                    ("__rust_try", ""),
                    ("carefree_runtime::api::life::live::<F, ()>", ""),
                    ("carefree_runtime::api::life::entry::<F, ()>", ""),
                ],
            );
            assert_eq!(lines, ["__nanosleep", "std::thread::sleep", "shop::wait", "0x1234"]);
        }
    }

    /// Where nothing is known to be the program's, nothing is held back.
    #[test]
    fn the_runtimes_own_are_shown_when_there_are_no_others() {
        let lines = shown(
            &WORKSPACE,
            &[("put", "/home/me/carefree/crates/runtime/src/carrier/queue.rs"), ("live", LIFE)],
        );
        assert_eq!(lines, ["carefree_runtime::carrier::queue::put"]);
    }

    #[test]
    fn lines_are_narrow_and_few() {
        let name = "a_long_name::".repeat(20) + "f";
        let file = "/home/me/".to_owned() + &"folder/".repeat(30) + "main.rs";
        let functions = vec![(name.as_str(), file.as_str()); 50];
        let lines = shown(&WORKSPACE, &functions);
        assert_eq!(lines.len(), FUNCTIONS + 1);
        assert_eq!(lines[FUNCTIONS / 2], "… (18 more)");
        let (first, place) = lines[0].split_once('\n').unwrap();
        assert_eq!(first.chars().count(), WIDTH - MARGIN);
        assert_eq!(place.chars().count(), WIDTH);
        assert!(place.ends_with("/main.rs:7"), "{place}");
    }

    #[test]
    fn places_are_those_of_files() {
        let mut images = Images::read();
        let mut place = |address| {
            let image = images.find(address);
            let mut functions = Functions { list: Mapped::new(), text: Text::new() };
            functions.add_place(address, image, &images);
            let Function { name, nameless, .. } = functions.list[0];
            (functions.get(name).to_owned(), nameless)
        };
        let here = places_are_those_of_files as fn() as usize as u64;
        let program = std::env::current_exe().unwrap();
        let program = program.file_name().unwrap().to_str().unwrap();
        let (name, in_file) = place(here);
        assert!(name.starts_with(&format!("{program}+0x")) && in_file, "{name}");
        // SAFETY: asks for a number.
        let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
        assert_eq!(place(kernels + 1), ("[vdso]+0x1".to_owned(), false));
        assert_eq!(place(7), ("0x7".to_owned(), false));
    }
}
