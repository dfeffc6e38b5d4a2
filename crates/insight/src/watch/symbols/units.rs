//! The functions of a compilation unit, inlined ones among them, from its debug information.
//!
//! gimli reads the values. The layouts of entries are read here, into mapped memory, because gimli would use
//! the program's allocator.

use gimli::{
    Abbreviations, AttributeSpecification, AttributeValue, DebugAbbrev, DebugAddr, DebugAddrBase,
    DebugInfo, DebugInfoOffset, DebugLineStr, DebugRanges, DebugRngLists, DebugRngListsBase,
    DebugStr, DebugStrOffsets, DebugStrOffsetsBase, DwAt, DwForm, DwTag, EndianSlice, NativeEndian,
    RangeLists, RangeListsOffset, Reader as _, UnitHeader, UnitOffset,
};

use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;

use super::lines::{Lines, Strings};
use super::symbol::{MOST, Symbol, bits};

type Reader<'a> = EndianSlice<'a, NativeEndian>;

/// The debug information of a file.
pub(super) struct Sections<'a> {
    info: DebugInfo<Reader<'a>>,
    abbreviations: DebugAbbrev<Reader<'a>>,
    text: DebugStr<Reader<'a>>,
    line_text: DebugLineStr<Reader<'a>>,
    text_offsets: DebugStrOffsets<Reader<'a>>,
    addresses: DebugAddr<Reader<'a>>,
    ranges: RangeLists<Reader<'a>>,
    lines: &'a [u8],
    strings: Strings<'a>,
}

impl<'a> Sections<'a> {
    /// Asks `section` for each section by its name. `None` if there is no debug information.
    pub(super) fn of(section: impl Fn(&str) -> &'a [u8]) -> Option<Sections<'a>> {
        let (info, text, line_text) =
            (section(".debug_info"), section(".debug_str"), section(".debug_line_str"));
        let read = |name| Reader::new(section(name), NativeEndian);
        let sections = Sections {
            info: DebugInfo::new(info, NativeEndian),
            abbreviations: DebugAbbrev::new(section(".debug_abbrev"), NativeEndian),
            text: DebugStr::new(text, NativeEndian),
            line_text: DebugLineStr::new(line_text, NativeEndian),
            text_offsets: DebugStrOffsets::from(read(".debug_str_offsets")),
            addresses: DebugAddr::from(read(".debug_addr")),
            ranges: RangeLists::new(
                DebugRanges::new(section(".debug_ranges"), NativeEndian),
                DebugRngLists::new(section(".debug_rnglists"), NativeEndian),
            ),
            lines: section(".debug_line"),
            strings: Strings { of_all: text, of_lines: line_text },
        };
        (!info.is_empty()).then_some(sections)
    }
}

/// The layout of entries with the same code (an abbreviation): their tag and attributes.
#[derive(Clone, Copy)]
struct Layout {
    code: u64,
    tag: DwTag,
    /// Its attributes: the range from here to `end` of [`Layouts::attributes`].
    first: usize,
    end: usize,
}

/// The layouts of a unit's entries.
struct Layouts {
    layouts: Mapped<Layout>,
    attributes: Mapped<AttributeSpecification>,
}

impl Layouts {
    /// Reads the layouts at `offset`, up to the one with the code `last` if that is given.
    fn read(sections: &Sections<'_>, offset: usize, last: Option<u64>) -> Option<Layouts> {
        let mut input = *gimli::Section::reader(&sections.abbreviations);
        input.skip(offset).ok()?;
        let mut read = Layouts { layouts: Mapped::new(), attributes: Mapped::new() };
        loop {
            let code = input.read_uleb128().ok()?;
            if code == 0 {
                return Some(read);
            }
            let tag = DwTag(input.read_uleb128_u16().ok()?);
            // Whether an entry has children, which are read as they come.
            input.skip(1).ok()?;
            let first = read.attributes.len();
            loop {
                let name = DwAt(input.read_uleb128_u16().ok()?);
                let form = DwForm(input.read_uleb128_u16().ok()?);
                if name.0 == 0 && form.0 == 0 {
                    break;
                }
                let constant = match form {
                    gimli::DW_FORM_implicit_const => Some(input.read_sleb128().ok()?),
                    _ => None,
                };
                let attribute = AttributeSpecification::new(name, form, constant);
                read.attributes.push(attribute).then_some(())?;
            }
            let layout = Layout { code, tag, first, end: read.attributes.len() };
            read.layouts.push(layout).then_some(())?;
            if last == Some(code) {
                return Some(read);
            }
        }
    }

    fn of(&self, code: u64) -> Option<&Layout> {
        let usual = code.checked_sub(1).and_then(|index| self.layouts.get(index as usize));
        let usual = usual.filter(|layout| layout.code == code);
        usual.or_else(|| self.layouts.iter().find(|layout| layout.code == code))
    }
}

/// The attributes of a function's entry that are used here.
#[derive(Default)]
struct Entry<'a> {
    low: Option<AttributeValue<Reader<'a>>>,
    high: Option<AttributeValue<Reader<'a>>>,
    ranges: Option<AttributeValue<Reader<'a>>>,
    /// The name for the linker, and the name in the source.
    linkage: Option<AttributeValue<Reader<'a>>>,
    name: Option<AttributeValue<Reader<'a>>>,
    /// The entry that has the other attributes.
    origin: Option<AttributeValue<Reader<'a>>>,
    call_file: Option<u64>,
    call_line: Option<u32>,
    lines: Option<usize>,
    folder: Option<AttributeValue<Reader<'a>>>,
}

/// A compilation unit.
struct Unit<'a> {
    header: UnitHeader<Reader<'a>>,
    low: u64,
    text_base: DebugStrOffsetsBase<usize>,
    address_base: DebugAddrBase<usize>,
    ranges_base: DebugRngListsBase<usize>,
}

impl<'a> Unit<'a> {
    fn new(header: UnitHeader<Reader<'a>>) -> Unit<'a> {
        let (encoding, kind) = (header.encoding(), gimli::DwarfFileType::Main);
        Unit {
            header,
            low: 0,
            text_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, kind),
            address_base: DebugAddrBase(0),
            ranges_base: DebugRngListsBase::default_for_encoding_and_file(encoding, kind),
        }
    }

    /// The code of the entry at `offset`, and where its attributes begin.
    fn code(&self, offset: UnitOffset<usize>) -> Option<(u64, UnitOffset<usize>)> {
        let mut input = self.header.range_from(offset..).ok()?;
        let before = input.len();
        let code = input.read_uleb128().ok()?;
        Some((code, UnitOffset(offset.0 + before - input.len())))
    }

    /// Reads the attributes at `offset`; also returns where the next entry begins.
    fn entry(
        &mut self,
        attributes: &[AttributeSpecification],
        offset: UnitOffset<usize>,
    ) -> Option<(Entry<'a>, UnitOffset<usize>)> {
        // Without layouts, this allocates nothing.
        let none = Abbreviations::default();
        let header = self.header;
        let mut raw = header.entries_raw(&none, Some(offset)).ok()?;
        let mut entry = Entry::default();
        for specification in attributes {
            let attribute = raw.read_attribute(*specification).ok()?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_low_pc => entry.low = Some(value),
                gimli::DW_AT_high_pc => entry.high = Some(value),
                gimli::DW_AT_ranges => entry.ranges = Some(value),
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    entry.linkage = Some(value);
                }
                gimli::DW_AT_name => entry.name = Some(value),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    entry.origin = Some(value);
                }
                gimli::DW_AT_call_file => {
                    entry.call_file = match value {
                        AttributeValue::FileIndex(file) => Some(file),
                        _ => attribute.udata_value(),
                    };
                }
                gimli::DW_AT_call_line => {
                    entry.call_line = attribute.udata_value().and_then(|line| line.try_into().ok());
                }
                gimli::DW_AT_stmt_list => {
                    if let AttributeValue::DebugLineRef(offset) = value {
                        entry.lines = Some(offset.0);
                    }
                }
                gimli::DW_AT_comp_dir => entry.folder = Some(value),
                gimli::DW_AT_str_offsets_base => {
                    if let AttributeValue::DebugStrOffsetsBase(base) = value {
                        self.text_base = base;
                    }
                }
                gimli::DW_AT_addr_base => {
                    if let AttributeValue::DebugAddrBase(base) = value {
                        self.address_base = base;
                    }
                }
                gimli::DW_AT_rnglists_base => {
                    if let AttributeValue::DebugRngListsBase(base) = value {
                        self.ranges_base = base;
                    }
                }
                _ => {}
            }
        }
        Some((entry, raw.next_offset()))
    }

    /// Passes over the attributes at `offset`; returns where the next entry begins.
    fn pass_over(
        &self,
        attributes: &[AttributeSpecification],
        offset: UnitOffset<usize>,
    ) -> Option<UnitOffset<usize>> {
        let none = Abbreviations::default();
        let mut raw = self.header.entries_raw(&none, Some(offset)).ok()?;
        raw.skip_attributes(attributes).ok()?;
        Some(raw.next_offset())
    }

    /// Reads the unit's own entry, which is the first, and sets the bases that it has.
    fn root(&mut self, sections: &Sections<'a>) -> Option<Entry<'a>> {
        let (code, at) = self.code(UnitOffset(self.header.size_of_header()))?;
        let offset = self.header.debug_abbrev_offset().0;
        let layouts = Layouts::read(sections, offset, Some(code))?;
        let layout = layouts.of(code)?;
        let (entry, _) = self.entry(&layouts.attributes[layout.first..layout.end], at)?;
        self.low = self.address(sections, entry.low).unwrap_or(0);
        Some(entry)
    }

    fn address(
        &self,
        sections: &Sections<'a>,
        value: Option<AttributeValue<Reader<'a>>>,
    ) -> Option<u64> {
        match value? {
            AttributeValue::Addr(address) => Some(address),
            AttributeValue::DebugAddrIndex(index) => {
                let size = self.header.address_size();
                sections.addresses.get_address(size, self.address_base, index).ok()
            }
            _ => None,
        }
    }

    fn string(
        &self,
        sections: &Sections<'a>,
        value: Option<AttributeValue<Reader<'a>>>,
    ) -> Option<&'a [u8]> {
        let text = match value? {
            AttributeValue::String(text) => text,
            AttributeValue::DebugStrRef(offset) => sections.text.get_str(offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => sections.line_text.get_str(offset).ok()?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let format = self.header.format();
                let offset = sections.text_offsets.get_str_offset(format, self.text_base, index);
                sections.text.get_str(offset.ok()?).ok()?
            }
            _ => return None,
        };
        Some(text.slice())
    }

    /// Which of the `wanted` addresses are in the code of an entry.
    fn covered(
        &self,
        sections: &Sections<'a>,
        entry: &Entry<'a>,
        addresses: &[u64],
        wanted: u64,
    ) -> u64 {
        let mut covered = 0;
        let mut cover = |begin: u64, end: u64| {
            // Code that the linker has left out begins at 0.
            if begin != 0 {
                bits(wanted)
                    .filter(|index| (begin..end).contains(&addresses[*index]))
                    .for_each(|index| covered |= 1 << index);
            }
        };
        if let Some(ranges) = entry.ranges {
            let offset = match ranges {
                AttributeValue::RangeListsRef(offset) => Some(RangeListsOffset(offset.0)),
                AttributeValue::DebugRngListsIndex(index) => {
                    let encoding = self.header.encoding();
                    sections.ranges.get_offset(encoding, self.ranges_base, index).ok()
                }
                _ => None,
            };
            let ranges = offset.and_then(|offset| {
                let (encoding, addresses) = (self.header.encoding(), &sections.addresses);
                let base = self.address_base;
                sections.ranges.ranges(offset, encoding, self.low, addresses, base).ok()
            });
            if let Some(mut ranges) = ranges {
                while let Ok(Some(range)) = ranges.next() {
                    cover(range.begin, range.end);
                }
            }
        } else if let Some(low) = self.address(sections, entry.low) {
            let length = entry.high.and_then(|high| high.udata_value());
            let high = length.map(|length| low.wrapping_add(length));
            if let Some(high) = high.or_else(|| self.address(sections, entry.high)) {
                cover(low, high);
            }
        }
        covered
    }

    /// The name of a function's entry, or of its origin.
    fn name(&self, sections: &Sections<'a>, entry: &Entry<'a>, depth: u32) -> Option<&'a [u8]> {
        /// Bounds the search where an entry is its own origin.
        const DEPTH: u32 = 8;
        let own = self.string(sections, entry.linkage);
        if let Some(own) = own.or_else(|| self.string(sections, entry.name)) {
            return Some(own);
        }
        if depth == DEPTH {
            return None;
        }
        let start = self.header.offset().as_debug_info_offset()?;
        let (header, at) = match entry.origin? {
            AttributeValue::UnitRef(at) => (self.header, at),
            AttributeValue::DebugInfoRef(at) => {
                let mut units = sections.info.units();
                let header = loop {
                    let header = units.next().ok()??;
                    let begin = header.offset().as_debug_info_offset()?;
                    if (begin.0..begin.0 + header.length_including_self()).contains(&at.0) {
                        break header;
                    }
                };
                let begin: DebugInfoOffset = header.offset().as_debug_info_offset()?;
                (header, UnitOffset(at.0 - begin.0))
            }
            _ => return None,
        };
        let mut unit = Unit::new(header);
        if header.offset().as_debug_info_offset() == Some(start) {
            unit.text_base = self.text_base;
        } else {
            unit.root(sections)?;
        }
        let (code, attributes) = unit.code(at)?;
        let layouts = Layouts::read(sections, header.debug_abbrev_offset().0, Some(code))?;
        let layout = layouts.of(code)?;
        let attributes = unit.entry(&layouts.attributes[layout.first..layout.end], attributes);
        unit.name(sections, &attributes?.0, depth + 1)
    }
}

/// A function that contains one of the addresses.
#[derive(Clone, Copy)]
struct Found<'a> {
    index: usize,
    name: Option<&'a [u8]>,
    /// For an inlined function, the file and line of the call.
    called: Option<(u64, u32)>,
}

/// Calls `with` for the functions at the `wanted` ones of `addresses`: those of one address in a row, from the
/// innermost on.
pub(super) fn look_up<'a>(
    sections: &Sections<'a>,
    addresses: &[u64],
    mut wanted: u64,
    paths: &mut Text,
    with: &mut impl FnMut(Symbol<'a>),
) {
    let mut units = sections.info.units();
    while let (true, Ok(Some(header))) = (wanted != 0, units.next()) {
        let mut unit = Unit::new(header);
        let Some(root) = unit.root(sections) else { continue };
        let here = unit.covered(sections, &root, addresses, wanted);
        if here == 0 {
            continue;
        }
        wanted &= !here;
        let mut found = Mapped::new();
        // It ends early at an entry that is not understood. What was found before is right.
        let _ = functions(sections, &mut unit, addresses, here, &mut found);
        let lines = root.lines.and_then(|offset| Lines::at(sections.lines, offset));
        let places = lines.as_ref().map_or([None; MOST], |lines| lines.of(addresses, here));
        let folder = unit.string(sections, root.folder).unwrap_or_default();
        for index in bits(here) {
            let mut place = places[index];
            let mut with = |name, place: Option<(u64, u32)>| {
                let path = lines.as_ref().zip(place).and_then(|(lines, (file, _))| {
                    lines.path(file, folder, sections.strings, paths)
                });
                let line = place.map(|(_, line)| line).filter(|line| *line > 0);
                with(Symbol { index, name, file: path, line });
            };
            let mut any = false;
            // The innermost comes last in the list.
            for function in
                found.iter().rev().filter(|function: &&Found<'_>| function.index == index)
            {
                with(function.name, place);
                place = function.called;
                any = true;
            }
            if !any && place.is_some() {
                with(None, place);
            }
        }
    }
}

/// The most functions of a unit that are noted. A table that has more for one stack is damaged.
const FUNCTIONS: usize = 4096;

/// Finds the functions of a unit, each after those that it is inlined in.
fn functions<'a>(
    sections: &Sections<'a>,
    unit: &mut Unit<'a>,
    addresses: &[u64],
    wanted: u64,
    found: &mut Mapped<Found<'a>>,
) -> Option<()> {
    let layouts = Layouts::read(sections, unit.header.debug_abbrev_offset().0, None)?;
    let mut at = UnitOffset(unit.header.size_of_header());
    let end = unit.header.length_including_self();
    while at.0 < end && found.len() < FUNCTIONS {
        let (code, attributes) = unit.code(at)?;
        if code == 0 {
            at = attributes;
            continue;
        }
        let layout = *layouts.of(code)?;
        let specifications = &layouts.attributes[layout.first..layout.end];
        if !matches!(layout.tag, gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine) {
            at = unit.pass_over(specifications, attributes)?;
            continue;
        }
        let (entry, next) = unit.entry(specifications, attributes)?;
        at = next;
        let here = unit.covered(sections, &entry, addresses, wanted);
        if here == 0 {
            continue;
        }
        let name = unit.name(sections, &entry, 0);
        let called = entry.call_file.zip(entry.call_line.or(Some(0)));
        for index in bits(here) {
            found.push(Found { index, name, called }).then_some(())?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::damage::{Damage, damage_times};
    use object::LittleEndian;
    use object::elf::FileHeader64;
    use object::read::elf::{FileHeader as _, SectionHeader as _};

    const NAMES: [&str; 9] = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_ranges",
        ".debug_rnglists",
        ".debug_addr",
        ".debug_str_offsets",
        ".debug_str",
        ".debug_line_str",
    ];

    fn sections<'a>(contents: &[&'a [u8]]) -> Option<Sections<'a>> {
        Sections::of(|name| contents[NAMES.iter().position(|n| *n == name).unwrap()])
    }

    /// Where a unit lies in the tables of this program.
    struct Place {
        begin: usize,
        end: usize,
        abbreviations: usize,
        lines: usize,
        addresses: Vec<u64>,
    }

    /// How many functions and places in sources are found for these addresses.
    fn found(sections: &Sections<'_>, addresses: &[u64]) -> (usize, usize) {
        let wanted = u64::MAX >> (MOST - addresses.len());
        let (mut functions, mut places, mut paths) = (0, 0, Text::new());
        look_up(sections, addresses, wanted, &mut paths, &mut |symbol| {
            functions += usize::from(symbol.name.is_some());
            places += usize::from(symbol.file.is_some());
        });
        (functions, places)
    }

    /// The smallest unit with enough functions, of which some are found in it alone. (Of others the linker has left the code
    /// out.)
    fn place(contents: &[&[u8]]) -> Option<Place> {
        let sections = &sections(contents)?;
        let is_whole = |begin: usize, end: usize, addresses: &[u64]| {
            let mut alone = contents.to_vec();
            alone[0] = &contents[0][begin..end];
            let found = self::sections(&alone).map(|sections| found(&sections, addresses));
            found.is_some_and(|(functions, places)| functions > 0 && places > 0)
        };
        let mut units = sections.info.units();
        let mut best: Option<Place> = None;
        while let Ok(Some(header)) = units.next() {
            let begin = header.offset().as_debug_info_offset().unwrap().0;
            let end = begin + header.length_including_self();
            let mut unit = Unit::new(header);
            let (Some(root), true) = (unit.root(sections), end - begin > 2000) else { continue };
            let smaller = best.as_ref().is_none_or(|best| end - begin < best.end - best.begin);
            let Some(lines) = root.lines.filter(|_| smaller) else { continue };
            let mut addresses = Vec::new();
            let table = Lines::at(sections.lines, lines).unwrap();
            table.run(&mut |from, _, _, _| addresses.push(from));
            addresses.truncate(MOST);
            if addresses.len() > 8 && is_whole(begin, end, &addresses) {
                let abbreviations = unit.header.debug_abbrev_offset().0;
                best = Some(Place { begin, end, abbreviations, lines, addresses });
            }
        }
        best
    }

    /// As in a file that is being written, or is not the one that was loaded.
    #[test]
    fn damaged_tables_do_no_harm() {
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let header = FileHeader64::<LittleEndian>::parse(&*file).unwrap();
        let table = header.sections(LittleEndian, &*file).unwrap();
        let mut whole = NAMES.map(|name| {
            let found = table.section_by_name(LittleEndian, name.as_bytes());
            found.map_or(&[][..], |(_, s)| s.data(LittleEndian, &*file).unwrap()).to_vec()
        });
        let Some(place) = place(&whole.each_ref().map(|bytes| &**bytes)) else {
            return eprintln!("skipped: there is no debug information");
        };
        whole[0] = whole[0][place.begin..place.end].to_vec();
        let regions = [
            (0, 0, whole[0].len()),
            (0, 0, 64),
            (1, place.abbreviations, 1000),
            (2, place.lines, 64),
            (2, place.lines, 2000),
        ];
        let mut damage = Damage(2);
        let (mut functions, mut places) = (0, 0);
        for round in 0..damage_times(60) {
            let mut undo = Vec::new();
            for _ in 0..round % 6 {
                let (section, begin, len) = regions[damage.below(regions.len())];
                let at = begin + damage.below(len);
                let Some(byte) = whole[section].get_mut(at) else { continue };
                undo.push((section, at, *byte));
                *byte = damage.of_byte(*byte);
            }
            let mut contents = whole.each_ref().map(|bytes| &**bytes);
            if round % 6 == 5 {
                let (section, begin, len) = regions[damage.below(regions.len())];
                let cut = (begin + damage.below(len)).min(contents[section].len());
                contents[section] = &contents[section][..cut];
                // Perhaps nothing of the unit is left.
                contents[7] = &contents[7][..damage.below(contents[7].len())];
            }
            if let Some(sections) = sections(&contents) {
                let (more, further) = found(&sections, &place.addresses);
                functions += more;
                places += further;
            }
            for (section, at, byte) in undo.into_iter().rev() {
                whole[section][at] = byte;
            }
        }
        assert!(functions > 0 && places > 0);
    }
}
