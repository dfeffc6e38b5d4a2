//! Telling machines apart without naming their owner.

use crate::env::Environment;

/// A name for the machine, in records' file names: `amd-epyc-7b13-2-cores-3f9a2c`. It comes from
/// the hardware alone, with memory in whole GiB, so that it is the same in a container, in the next
/// boot and under the next kernel, and gives no host name away; unless the machine was given a name.
/// It is made anew from a record's facts whenever it is asked for: files keep the names they have.
pub fn name(environment: &Environment) -> String {
    if let Some(machine) = &environment.machine {
        return machine.clone();
    }
    let mut slug = String::new();
    let cpu = environment.cpu.as_deref().unwrap_or("unknown").to_lowercase();
    // Words that are in every processor's name tell nothing.
    for word in cpu.split(|c: char| !c.is_ascii_alphanumeric()) {
        if !word.is_empty() && !["r", "tm", "cpu", "processor", "core"].contains(&word) {
            slug = if slug.is_empty() { word.into() } else { format!("{slug}-{word}") };
        }
        if slug.len() > 24 {
            break;
        }
    }
    let key = hardware(environment);
    format!("{slug}-{}-cores-{}", environment.cores_allowed, &fingerprint(key.as_bytes())[..6])
}

/// What figures depend on most.
fn hardware(environment: &Environment) -> String {
    let Environment { cpu, cores, cores_allowed, memory, virtual_machine, .. } = environment;
    let memory = memory.map(gibibytes);
    format!("{cpu:?} {cores} {cores_allowed} {memory:?} {virtual_machine:?}")
}

/// Memory in whole GiB: kernels take a little more or less of it for themselves, each its own share.
fn gibibytes(bytes: u64) -> u64 {
    bytes.saturating_add(1 << 29) >> 30
}

/// The differences of two environments that figures depend on; none where both are one machine's.
pub fn differences(one: &Environment, other: &Environment) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, one: Option<String>, other: Option<String>| {
        if one != other {
            let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".into());
            found.push(format!("{what}: {} and {}", known(one), known(other)));
        }
    };
    // A record that was made without a name may be of any machine.
    if one.machine.is_some() && other.machine.is_some() {
        check("machine", one.machine.clone(), other.machine.clone());
    }
    let number = |count: usize| (count > 0).then(|| count.to_string());
    let memory = |bytes: Option<u64>| bytes.map(|bytes| format!("{} GiB", gibibytes(bytes)));
    check("processor", one.cpu.clone(), other.cpu.clone());
    // Older records do not tell these.
    if one.cores > 0 && other.cores > 0 {
        check("cores", number(one.cores), number(other.cores));
    }
    if let (Some(one), Some(other)) = (one.virtual_machine, other.virtual_machine) {
        let kind = |is_virtual| Some(if is_virtual { "yes" } else { "no" }.to_owned());
        check("virtual machine", kind(one), kind(other));
    }
    check("cores in use", number(one.cores_allowed), number(other.cores_allowed));
    check("memory", memory(one.memory), memory(other.memory));
    found
}

/// A fingerprint of bytes, in hexadecimal: FNV-1a, 64 bits. The same on every machine and in every
/// version. It tells programs apart, and does not resist collisions made on purpose.
pub fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_of_fnv() {
        // From the algorithm's published test vectors.
        assert_eq!(fingerprint(b""), "cbf29ce484222325");
        assert_eq!(fingerprint(b"a"), "af63dc4c8601ec8c");
        assert_eq!(fingerprint(b"foobar"), "85944171f73967e8");
    }

    #[test]
    fn a_machine_keeps_its_name_whatever_runs_on_it() {
        let here = Environment {
            cpu: Some("Intel(R) Core(TM) i7-1185G7 CPU @ 3.00GHz".into()),
            cores: 8,
            cores_allowed: 8,
            memory: Some(16 << 30),
            ..Environment::default()
        };
        let later = Environment { kernel: "Linux 7.0".into(), started: "x".into(), ..here.clone() };
        assert_eq!(name(&here), name(&later));
        assert!(name(&here).starts_with("intel-i7-1185g7-3-00ghz-8-cores-"), "{}", name(&here));
        // Two kernels of one machine, each of which takes its share of the memory.
        let with = |memory| Environment { memory: Some(memory), ..here.clone() };
        assert_eq!(name(&with(25_276_514_304)), name(&with(25_276_502_016)));
        assert_ne!(name(&with(8 << 30)), name(&with(16 << 30)));
        let other = Environment { cores_allowed: 4, ..here.clone() };
        assert_ne!(name(&here), name(&other));
        assert_eq!(differences(&here, &later), Vec::<String>::new());
        let named = |name: &str| Environment { machine: Some(name.into()), ..here.clone() };
        assert_eq!(super::name(&named("n1")), "n1");
        assert_eq!(differences(&named("n1"), &here), Vec::<String>::new());
        assert_eq!(differences(&named("n1"), &named("n2")), ["machine: n1 and n2"]);
        assert_eq!(differences(&here, &other), ["cores in use: 8 and 4"]);
    }

    /// What gives a machine another name keeps its figures from being judged beside the first one's.
    #[test]
    fn machines_of_two_names_differ() {
        let here = Environment {
            cpu: Some("Neoverse-N1".into()),
            cores: 8,
            cores_allowed: 8,
            memory: Some(16 << 30),
            virtual_machine: Some(true),
            ..Environment::default()
        };
        let others = [
            (Environment { cpu: Some("Neoverse-V1".into()), ..here.clone() }, "processor: "),
            (Environment { cores: 64, ..here.clone() }, "cores: 8 and 64"),
            (Environment { cores_allowed: 4, ..here.clone() }, "cores in use: 8 and 4"),
            (Environment { memory: Some(8 << 30), ..here.clone() }, "memory: 16 GiB and 8 GiB"),
            (
                Environment { virtual_machine: Some(false), ..here.clone() },
                "virtual machine: yes and no",
            ),
        ];
        for (other, told) in others {
            assert_ne!(name(&here), name(&other));
            let found = differences(&here, &other);
            assert!(found.len() == 1 && found[0].starts_with(told), "{found:?}");
        }
    }
}
