//! Variants: a runtime with other settings, and one that was built in another way.

use std::fs;

use carefree_lab::targets::lineup::Wishes;
use carefree_lab::targets::read_all;

use crate::fake::{Fake, LONG, RUNTIME, executable, run, toml};

/// A shell that was told by a variable or an argument, and one that was built in another way.
const VARIANTS: &str = r#"
[variants.loud]
what = "with its voice raised"
env = { VOICE = "loud" }
arguments = ["-u"]
since = "1.10"
probe = ["{runtime}", "try"]
package = "a fake with a voice"
units = ["good"]

[variants.loud.changes.good]
what = "a loud shell"

[variants.built]
what = "built by hand"
ending = "b"
package = "a fake that was built by hand"

[variants.built.changes.good]
cores = "one"
"#;

/// How a runtime takes the argument: it says what it was started with.
const LOUD: &str = r#"-u)
    [ "$VOICE" = loud ] || exit 1
    [ "$2" = sample ] || exit 0
    echo "$VOICE $1" >> $0.log; shift 2; exec sh "$@" ;;
"#;

#[test]
fn variants_stand_as_versions_of_their_own_with_their_settings() {
    let fake = Fake::new();
    fake.write_toml(&(toml() + VARIANTS));
    let script = RUNTIME.replace("VERSION", "1.10").replace("sample)", &format!("{LOUD}sample)"));
    executable(&fake.at("versions/1.10/bin/fake"), &script);
    fake.install("1.10b");

    let wish = |wish: &str| fake.field(wish, &["good", "few"]);
    let field = wish("fake/loud").expect("1.10 has it");
    let kinds: Vec<_> = field.kinds.iter().map(|t| (&*t.version, &*t.unit)).collect();
    assert_eq!(kinds, [("1.10 (loud)", "good")], "it has no other unit");
    assert_eq!(field.facts[0].units["good"].what, "a loud shell");
    assert!(
        field.facts[0].to_string().contains("fake, with its voice raised"),
        "{:?}",
        field.facts
    );
    assert_eq!(run(&field, 1, LONG).taken.len(), 1);
    let log = fake.at("versions/1.10/bin/fake.log");
    assert_eq!(fs::read_to_string(&log).expect("it ran"), "loud -u\n");
    // Beside it, as it is by itself.
    let both = fake.field_of(&Wishes {
        runtimes: vec!["fake@1.10".into(), "fake@1.10/loud".into()],
        units: vec!["good".into()],
        ..Wishes::default()
    });
    let both = both.expect("both are there");
    let versions: Vec<&str> = both.kinds.iter().map(|trial| trial.version.as_str()).collect();
    assert_eq!(versions, ["1.10", "1.10 (loud)"]);
    assert_ne!(both.kinds[0].program, both.kinds[1].program);
    assert_eq!(run(&both, 1, LONG).taken.len(), 2);
    // A program that was named has variants as well.
    let path = fake.at("versions/1.10/bin/fake").display().to_string();
    let with = |name: &str| {
        let with = vec![format!("{name}={path}")];
        let units = vec!["good".to_owned()];
        fake.field_of(&Wishes { with, units, ..Wishes::default() })
    };
    assert_eq!(with("fake@mine/loud").expect("there").kinds[0].version, "1.10 (mine, loud)");
}

#[test]
fn a_build_that_is_a_variant_is_taken_where_it_is_named() {
    let fake = Fake::new();
    fake.write_toml(&(toml() + VARIANTS));
    fake.install("2.0b");
    let versions = |wish: &str| {
        let field = fake.field(wish, &["good"])?;
        Ok::<_, String>(field.kinds.iter().map(|trial| trial.version.clone()).collect::<Vec<_>>())
    };
    assert_eq!(versions("fake/built"), Ok(vec!["2.0b".into()]));
    assert_eq!(versions("fake@2.0b"), Ok(vec!["2.0b".into()]));
    assert_eq!(versions("fake@all"), Ok(["1.10", "1.9", "2.0b"].map(String::from).to_vec()));
    let none = versions("fake@2.0").expect_err("it is another");
    assert_eq!(none, "there is no fake 2.0 here; there is 1.10, 1.9 and 2.0b");
    let facts = fake.field("fake/built", &["good"]).expect("it is there").facts;
    assert!(facts[0].units["good"].one_core);
    assert_eq!(facts[0].variant.as_deref(), Some("built by hand"));
}

#[test]
fn programs_that_were_named_are_asked_for_variants_too() {
    let fake = Fake::new();
    fake.write_toml(&(toml() + VARIANTS));
    // No glob finds these two.
    let place = |name: &str, version: &str, more: &str| {
        let script =
            RUNTIME.replace("VERSION", version).replace("sample)", &format!("{more}sample)"));
        executable(&fake.at(name), &script);
        fake.at(name).display().to_string()
    };
    let (built, loud) = (place("built", "2.0b", ""), place("loud", "3.0", LOUD));
    let versions = |runtime: &str, with: &[String]| {
        let field = fake.field_of(&Wishes {
            runtimes: vec![runtime.to_owned()],
            with: with.to_vec(),
            units: vec!["good".into()],
            ..Wishes::default()
        })?;
        Ok::<_, String>(field.kinds.iter().map(|trial| trial.version.clone()).collect::<Vec<_>>())
    };
    let all = |all: &[&str]| Ok(all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
    let [built, loud] = [format!("fake@ft={built}"), format!("fake@mine={loud}")];
    // The way it was built is the variant: it takes part once.
    for wish in ["fake/built", "fake@ft/built", "fake@2/built", "fake@all/built", "fake@ft"] {
        assert_eq!(versions(wish, std::slice::from_ref(&built)), all(&["2.0b (ft)"]), "{wish}");
    }
    // By settings it is one beside the program as it is by itself.
    for wish in ["fake/loud", "fake@mine/loud", "fake@all/loud"] {
        let both = ["3.0 (mine, loud)", "3.0 (mine)"];
        assert_eq!(
            versions(wish, &[built.clone(), loud.clone()])
                .map(|all| all.into_iter().filter(|one| one != "2.0b (ft)").collect::<Vec<_>>()),
            all(&both),
            "{wish}"
        );
    }
    let varied = loud.replace("@mine", "@mine/loud");
    assert_eq!(versions("fake/loud", &[varied]), all(&["3.0 (mine, loud)"]));
    let none =
        versions("fake@3.0/built", std::slice::from_ref(&loud)).expect_err("by another build");
    assert!(none.contains("3.0 (mine) lacks it"), "{none}");
    let none = versions("fake@4", &[loud]).expect_err("not here");
    assert_eq!(none, "there is no fake 4 here; there is 1.10, 1.9 and 3.0 (mine)");
}

#[test]
fn a_variant_that_is_not_here_is_told_of_in_a_line() {
    let fake = Fake::new();
    fake.write_toml(&(toml() + VARIANTS));
    let wrong = |wish: &str| fake.field(wish, &["good"]).expect_err("not here");
    let old = wrong("fake@1.9/loud");
    assert_eq!(old, "no fake here has the variant loud: 1.9 is too old, it came with 1.10");
    let silent = wrong("fake/loud");
    let lacks = "no fake here has the variant loud: 1.10 lacks it; a fake with a voice has it";
    assert_eq!(silent, lacks);
    let built = wrong("fake/built");
    assert!(built.ends_with("1.10 lacks it; a fake that was built by hand has it"), "{built}");
    let unknown = wrong("fake/laud");
    assert!(unknown.contains("'laud'") && unknown.contains("built and loud"), "{unknown}");
    fake.write_toml(&toml());
    assert_eq!(wrong("fake/loud"), "fake has no variants, and so no 'loud'");
}

#[test]
fn a_mistake_in_a_variant_is_a_line() {
    let fake = Fake::new();
    let mistake = |from: &str, to: &str| {
        assert!(VARIANTS.contains(from), "{from}");
        fake.write_toml(&(toml() + &VARIANTS.replace(from, to)));
        let (_, mistakes) = read_all(&[fake.at("targets")]);
        mistakes.concat()
    };
    let said = mistake("env = { VOICE = \"loud\" }\narguments = [\"-u\"]\n", "");
    assert!(
        said.ends_with("[variants.loud] needs env, arguments or ending: what makes it another")
    );
    let said = mistake("units = [\"good\"]", "units = [\"god\"]");
    assert!(said.contains("[variants.loud]: there is no unit 'god'"), "{said}");
    let said = mistake("[variants.loud.changes.good]", "[variants.loud.changes.god]");
    assert!(said.contains("[variants.loud]: there is no unit 'god'"), "{said}");
    let said = mistake("\"{runtime}\", \"try\"", "\"{cache}\"");
    assert!(said.contains("[variants.loud] probe: there is no place {cache}"), "{said}");
    let said = mistake("package = \"a fake with a voice\"\n", "");
    assert!(said.contains("[variants.loud]: package goes with probe or ending"), "{said}");
    let said = mistake("ending = \"b\"", "ending = \"b\"\nsince = \"2\"");
    assert!(said.contains("[variants.built]: an ending goes without env"), "{said}");
    let said = mistake("variants.loud", "variants.2");
    assert!(said.contains("[variants.2]: the name is not letters"), "{said}");
    let deaf = (toml() + VARIANTS).replace("run = [\"{runtime}\", ", "run = [\"env\", ");
    fake.write_toml(&deaf);
    let (_, mistakes) = read_all(&[fake.at("targets")]);
    assert!(mistakes.concat().contains("[programs.units] run has no {runtime}"), "{mistakes:?}");
}
