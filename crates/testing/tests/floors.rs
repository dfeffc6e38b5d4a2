//! Floors: within a crate, a module stands above all that it imports. Modules that import each other
//! in a circle have to be understood together, and cannot be tested apart.
//!
//! The test parses the sources and notes for each module which other modules its paths lead to. Tests
//! and models are left out. A path through a re-export leads to the module that defines the item. Of
//! macros the tokens are searched for paths; what begins with `$` belongs to the place of the call.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// Circles that are still there: the crate, and the modules that a circle may have. Take out what is
/// undone; put nothing in without a reason beside it.
const LEFT: &[(&str, &str)] = &[];

/// Crates in which the folders, too, import each other one way.
const FLOORED: &[&str] = &["context", "insight", "interpose", "reactor", "runtime"];

/// A module's path within its crate: no name for the root.
type Name = Vec<String>;

#[derive(Default)]
struct Sources {
    modules: BTreeMap<Name, Module>,
}

#[derive(Default)]
struct Module {
    /// Paths that it mentions, as from the root.
    paths: BTreeSet<Name>,
    /// What it re-exports: the name here, and the path.
    exports: BTreeMap<String, Name>,
}

/// Whether an item with these attributes exists in tests or models alone.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|one| one.path().is_ident("cfg")).any(|one| {
        let text = one.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let text = text.replace(' ', "").replace("not(test)", "").replace("not(loom)", "");
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        words.any(|word| word == "test" || word == "loom")
    })
}

/// The file of the module `name` that is declared in `file`, whose other modules lie in `folder`.
fn file_of(name: &str, attributes: &[Attribute], file: &Path, folder: &Path) -> PathBuf {
    for attribute in attributes.iter().filter(|one| one.path().is_ident("path")) {
        if let Ok(syn::MetaNameValue { value: syn::Expr::Lit(value), .. }) =
            attribute.meta.require_name_value()
        {
            if let syn::Lit::Str(path) = &value.lit {
                return file.parent().expect("a file is in a folder").join(path.value());
            }
        }
    }
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() { flat } else { folder.join(name).join("mod.rs") }
}

impl Sources {
    /// Reads the crate whose root is `file`.
    fn read(file: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.read_file(file, file.parent().expect("a file is in a folder"), &Vec::new());
        sources
    }

    fn read_file(&mut self, file: &Path, folder: &Path, name: &Name) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut children: Vec<(String, Vec<Attribute>)> = Vec::new();
        for item in &parsed.items {
            if let Item::Mod(child) = item {
                if child.content.is_none() && !is_left_out(&child.attrs) {
                    children.push((child.ident.to_string(), child.attrs.clone()));
                }
            }
        }
        let mut reader = Reader {
            module: Module::default(),
            children: children.iter().map(|(child, _)| child.clone()).collect(),
            of: name.clone(),
            at: name.clone(),
            made: 0,
        };
        reader.visit_file(&parsed);
        self.modules.insert(name.clone(), reader.module);
        for (child, attributes) in children {
            let path = file_of(&child, &attributes, file, folder);
            let name = [&name[..], std::slice::from_ref(&child)].concat();
            self.read_file(&path, &folder.join(child), &name);
        }
    }

    /// The module in which the item at `path` is.
    fn home(&self, path: &[String], hops: usize) -> Option<Name> {
        let length = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]))?;
        let (name, rest) = path.split_at(length);
        let module = &self.modules[name];
        let Some(item) = rest.first().filter(|_| hops > 0) else { return Some(name.to_vec()) };
        if let Some(target) = module.exports.get(item) {
            let target = [target, &rest[1..]].concat();
            return self.home(&target, hops - 1).or(Some(name.to_vec()));
        }
        Some(name.to_vec())
    }

    /// The arrows between modules, named by so many parts of their paths. The root may import all of
    /// them, and has none.
    fn arrows(&self, parts: usize) -> BTreeMap<Name, BTreeSet<Name>> {
        let short = |name: &[String]| name[..name.len().min(parts)].to_vec();
        let mut arrows: BTreeMap<Name, BTreeSet<Name>> = BTreeMap::new();
        for (name, module) in self.modules.iter().filter(|(name, _)| !name.is_empty()) {
            let from = short(name);
            let homes = module.paths.iter().filter_map(|path| self.home(path, 8));
            let homes = homes.map(|home| short(&home)).filter(|to| *to != from && !to.is_empty());
            arrows.entry(from.clone()).or_default().extend(homes);
        }
        arrows
    }

    /// The modules, by so many parts of their names, that import each other in a circle: circle by
    /// circle.
    fn circles(&self, parts: usize) -> BTreeSet<String> {
        let arrows = self.arrows(parts);
        let reached = |from: &Name| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(at) = next.pop() {
                for to in arrows.get(&at).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to.clone());
                    }
                }
            }
            seen
        };
        let reach: BTreeMap<&Name, BTreeSet<Name>> =
            arrows.keys().map(|name| (name, reached(name))).collect();
        let circle = |name: &Name| {
            let mutual = reach[name].iter().filter(|other| reach[*other].contains(name));
            mutual.map(|name| name.join("::")).collect::<Vec<_>>().join(" ")
        };
        let in_a_circle = |name: &&Name| reach[*name].contains(*name);
        arrows.keys().filter(in_a_circle).map(circle).collect()
    }
}

struct Reader {
    module: Module,
    children: BTreeSet<String>,
    /// The module that the file is.
    of: Name,
    /// The same, or a module that is written out in the file.
    at: Name,
    /// How many of the modules around are made by a macro, and import all of the one outside.
    made: usize,
}

/// Macros that put their tokens into a module of its own, which imports all of the one outside.
const MAKES_A_MODULE: &str = "interpose";

impl Reader {
    /// A path as from the root; `None` if it leads out of the crate, or to a name of this module.
    fn absolute(&self, path: &[String]) -> Option<Name> {
        let mut base = self.at.clone();
        let rest = match path[0].as_str() {
            "crate" => {
                base.clear();
                &path[1..]
            }
            "self" => &path[1..],
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                base.truncate((base.len() + self.made.min(ups)).saturating_sub(ups));
                &path[ups..]
            }
            child if self.at == self.of && self.children.contains(child) => path,
            _ => return None,
        };
        Some([&base[..], rest].concat())
    }

    fn note_path(&mut self, path: &[String]) {
        if let Some(path) = (path.len() > 1).then(|| self.absolute(path)).flatten() {
            self.module.paths.insert(path);
        }
    }

    /// Notes the paths among the tokens of a macro.
    fn note_tokens(&mut self, mut rest: Cursor<'_>) {
        while !rest.eof() {
            let variable = rest.punct().filter(|(sign, _)| sign.as_char() == '$');
            let start = variable.as_ref().map_or(rest, |(_, after)| *after);
            if let Some((path, after)) = path_at(start) {
                if variable.is_none() {
                    self.note_path(&path);
                }
                rest = after;
                if path == [MAKES_A_MODULE] {
                    let call = rest.punct().and_then(|(_, after)| after.any_group());
                    if let Some((inside, _, _, after)) = call {
                        self.note_module(inside);
                        rest = after;
                    }
                }
            } else if let Some((inside, _, _, after)) = rest.any_group() {
                self.note_tokens(inside);
                rest = after;
            } else {
                rest = rest.token_tree().expect("this is not the end").1;
            }
        }
    }

    /// Notes the paths in a module that a macro makes.
    fn note_module(&mut self, tokens: Cursor<'_>) {
        self.made += 1;
        self.note_tokens(tokens);
        self.made -= 1;
    }

    fn note_tree(&mut self, before: &[String], tree: &UseTree, exported: bool) {
        match tree {
            UseTree::Path(path) => {
                let path_so_far = [before, &[path.ident.to_string()]].concat();
                self.note_tree(&path_so_far, &path.tree, exported);
            }
            UseTree::Name(name) => self.note_use(before, &name.ident, &name.ident, exported),
            UseTree::Rename(name) => self.note_use(before, &name.ident, &name.rename, exported),
            UseTree::Glob(_) => {
                if let Some(path) = (!before.is_empty()).then(|| self.absolute(before)).flatten() {
                    self.module.paths.insert(path);
                }
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_tree(before, tree, exported));
            }
        }
    }

    fn note_use(
        &mut self,
        before: &[String],
        item: &syn::Ident,
        name: &syn::Ident,
        exported: bool,
    ) {
        let mut path = before.to_vec();
        if item != "self" || path.is_empty() {
            path.push(item.to_string());
        }
        let Some(path) = self.absolute(&path) else { return };
        if exported && self.at == self.of {
            self.module.exports.insert(name.to_string(), path);
        } else {
            self.module.paths.insert(path);
        }
    }
}

/// The path that begins here, and what follows it.
fn path_at(start: Cursor<'_>) -> Option<(Name, Cursor<'_>)> {
    fn colon(at: Cursor<'_>) -> Option<Cursor<'_>> {
        at.punct().filter(|(sign, _)| sign.as_char() == ':').map(|(_, after)| after)
    }
    let (first, mut rest) = start.ident()?;
    let mut path = vec![first.to_string()];
    while let Some((next, after)) = colon(rest).and_then(colon).and_then(Cursor::ident) {
        path.push(next.to_string());
        rest = after;
    }
    Some((path, rest))
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes: &[Attribute] = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Static(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !is_left_out(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.at.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.at.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let exported = !matches!(item.vis, Visibility::Inherited);
        self.note_tree(&[], &item.tree, exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note_path(&parts);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        let tokens = TokenBuffer::new2(call.tokens.clone());
        match call.path.is_ident(MAKES_A_MODULE) {
            true => self.note_module(tokens.begin()),
            false => self.note_tokens(tokens.begin()),
        }
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}

/// The roots of the crates of this repository, by name.
fn roots() -> BTreeMap<String, PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![top.join("fuzz"), top.join("benches")];
    let crates = fs::read_dir(top.join("crates")).expect("the crates' folder");
    folders.extend(crates.map(|entry| entry.expect("an entry of the folder").path()));
    let root = |folder: &PathBuf| {
        let file = ["src/lib.rs", "src/main.rs"].map(|file| folder.join(file));
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        file.into_iter().find(|file| file.exists()).map(|file| (name, file))
    };
    folders.iter().filter_map(root).collect()
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let mut found = BTreeSet::new();
    for (name, root) in roots() {
        let sources = Sources::read(&root);
        let mut circles = sources.circles(usize::MAX);
        if FLOORED.contains(&name.as_str()) {
            circles.extend(sources.circles(1));
        }
        found.extend(circles.into_iter().map(|circle| (name.clone(), circle)));
    }
    let parts = |circle: &str| circle.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    let is_within = |(name, circle): &(String, String), (listed, whole): &(&str, &str)| {
        name == listed && parts(circle).is_subset(&parts(whole))
    };
    let new = found.iter().filter(|one| !LEFT.iter().any(|left| is_within(one, left)));
    let new: Vec<_> = new.collect();
    assert!(new.is_empty(), "new circles of imports: {new:#?}");
    let gone = LEFT.iter().filter(|left| !found.iter().any(|one| is_within(one, left)));
    let gone: Vec<_> = gone.collect();
    assert!(gone.is_empty(), "not there any more; take them out of LEFT: {gone:#?}");
}

#[test]
fn a_circle_is_found_by_whichever_way_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    fs::create_dir(folder.path().join("top")).unwrap();
    write(
        "lib.rs",
        "mod bottom; mod middle; mod top; #[cfg(test)] mod tests; pub use top::above::Top;",
    );
    write("bottom.rs", "pub fn all() { crate::Top::new(); }");
    write(
        "middle.rs",
        "use crate::bottom::all; #[cfg(test)] mod tests { use crate::top::Facade; }",
    );
    write("top/mod.rs", "mod above; pub use above::Top as Facade;");
    write("top/above.rs", "use crate::middle; pub struct Top;");
    let circles = || Sources::read(&folder.path().join("lib.rs")).circles(usize::MAX);
    assert_eq!(circles(), BTreeSet::from(["bottom middle top::above".to_owned()]));
    write("bottom.rs", "pub fn all() {}");
    assert_eq!(circles(), BTreeSet::new());
    write("bottom.rs", "use crate::top::Facade; pub fn all() {}");
    assert_eq!(circles(), BTreeSet::from(["bottom middle top::above".to_owned()]));
    for tokens in [
        "interpose! { safe fn read(fd: c_int) -> isize, else raw { super::super::Top::new() } }",
        "numbers! { one => crate::top::Facade; }",
        "macro_rules! each { ($name:ident) => { interpose! { fn $name() { crate::Top } } } }",
        "pub fn all() { let _ = [format!(\"{}\", crate::top::Facade::NAME)]; }",
    ] {
        write("bottom.rs", &format!("pub fn all() {{}} {tokens}"));
        assert_eq!(circles(), BTreeSet::from(["bottom middle top::above".to_owned()]), "{tokens}");
    }
    for tokens in [
        "interpose! { fn read() { super::other::Top } }",
        "macro_rules! each { () => { $crate::top::Facade } }",
        "#[cfg(test)] numbers! { crate::top::Facade }",
    ] {
        write("bottom.rs", &format!("pub fn all() {{}} {tokens}"));
        assert_eq!(circles(), BTreeSet::new(), "{tokens}");
    }
}
