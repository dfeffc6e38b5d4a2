//! The line table of a compilation unit (DWARF 2 to 5): the file and line of each instruction. gimli reads it
//! too, but allocates its lists of files by the program's allocator.

use gimli::{EndianSlice, NativeEndian, Reader as _};

use carefree_ground::mapped::Mapped;
use carefree_ground::text::Text;

use super::symbol::{MOST, bits};

type Reader<'a> = EndianSlice<'a, NativeEndian>;

/// A unit's table.
pub(super) struct Lines<'a> {
    version: u16,
    wide: bool,
    least_instruction: u64,
    line_base: i64,
    line_range: u64,
    /// How many arguments each operation below the special ones has.
    arguments: Reader<'a>,
    files: Files<'a>,
    program: Reader<'a>,
}

/// The lists of folders and files.
enum Files<'a> {
    /// Names; that of a file is followed by the number of its folder.
    Old { folders: Reader<'a>, files: Reader<'a> },
    /// Lists with a count and a format each.
    New { folders: List<'a>, files: List<'a> },
}

#[derive(Clone, Copy)]
struct List<'a> {
    /// Pairs of a content type and a form.
    format: Reader<'a>,
    fields: u8,
    count: u64,
    entries: Reader<'a>,
}

/// The sections with strings.
#[derive(Clone, Copy)]
pub(super) struct Strings<'a> {
    pub(super) of_all: &'a [u8],
    pub(super) of_lines: &'a [u8],
}

impl<'a> Strings<'a> {
    fn at(section: &'a [u8], offset: usize) -> Option<&'a [u8]> {
        let rest = section.get(offset..)?;
        Some(&rest[..rest.iter().position(|byte| *byte == 0)?])
    }
}

/// An operation's number.
mod operation {
    pub(super) const COPY: u8 = 1;
    pub(super) const ADVANCE: u8 = 2;
    pub(super) const ADVANCE_LINE: u8 = 3;
    pub(super) const SET_FILE: u8 = 4;
    pub(super) const ADVANCE_AS_LAST: u8 = 8;
    pub(super) const ADVANCE_FIXED: u8 = 9;
    pub(super) const END: u8 = 1;
    pub(super) const SET_ADDRESS: u8 = 2;
}

impl<'a> Lines<'a> {
    /// The table at `offset` of the section.
    pub(super) fn at(section: &'a [u8], offset: usize) -> Option<Lines<'a>> {
        let mut input = Reader::new(section.get(offset..)?, NativeEndian);
        let (length, format) = input.read_initial_length().ok()?;
        let mut input = input.split(length).ok()?;
        let version = input.read_u16().ok()?;
        if !(2..=5).contains(&version) {
            return None;
        }
        if version == 5 {
            // The sizes of addresses and of segment selectors.
            input.skip(2).ok()?;
        }
        let length = input.read_length(format).ok()?;
        let mut header = input.split(length).ok()?;
        let program = input;
        let least_instruction = header.read_u8().ok()?.into();
        // The most operations of an instruction, and whether a row begins a statement by default.
        header.skip(if version >= 4 { 2 } else { 1 }).ok()?;
        let line_base = header.read_i8().ok()?.into();
        let line_range = u64::from(header.read_u8().ok()?);
        let first_special = header.read_u8().ok()?;
        let arguments = header.split(usize::from(first_special).checked_sub(1)?).ok()?;
        let wide = format == gimli::Format::Dwarf64;
        let files = match version {
            5 => {
                let folders = List::read(&mut header, wide)?;
                Files::New { folders, files: List::read(&mut header, wide)? }
            }
            _ => {
                let folders = header;
                while !header.read_null_terminated_slice().ok()?.is_empty() {}
                Files::Old { folders, files: header }
            }
        };
        let lines = Lines {
            version,
            wide,
            least_instruction,
            line_base,
            line_range,
            arguments,
            files,
            program,
        };
        (line_range > 0).then_some(lines)
    }

    /// The file number and line of each `wanted` one of `addresses`.
    pub(super) fn of(&self, addresses: &[u64], wanted: u64) -> [Option<(u64, u32)>; MOST] {
        let mut found = [None; MOST];
        // It ends early at a part of the table that is not understood.
        let _ = self.run(&mut |from, to, file, line| {
            for index in bits(wanted) {
                if (from..to).contains(&addresses[index]) {
                    found[index] = Some((file, line));
                }
            }
        });
        found
    }

    /// Calls `row` with the range of addresses, the file and the line of each row.
    pub(super) fn run(&self, row: &mut impl FnMut(u64, u64, u64, u32)) -> Option<()> {
        let mut program = self.program;
        let first_special = self.arguments.len() as u64 + 1;
        let (mut address, mut file, mut line) = (0u64, 1u64, 1i64);
        // The previous row, which ends where the next one begins. Code that the linker has left out begins at
        // 0.
        let mut before: Option<(u64, u64, i64)> = None;
        let mut finish = |before: Option<(u64, u64, i64)>, to: u64| {
            if let Some((from, file, line)) = before.filter(|(from, ..)| *from != 0) {
                row(from, to, file, u32::try_from(line).unwrap_or(0));
            }
        };
        while !program.is_empty() {
            let code = program.read_u8().ok()?;
            let advance = |by: u64| by.wrapping_mul(self.least_instruction);
            if u64::from(code) >= first_special {
                let special = u64::from(code) - first_special;
                address = address.wrapping_add(advance(special / self.line_range));
                line = line.wrapping_add(self.line_base + (special % self.line_range) as i64);
                finish(before, address);
                before = Some((address, file, line));
                continue;
            }
            match code {
                0 => {
                    let length = program.read_uleb128().ok()?;
                    let mut extended = program.split(usize::try_from(length).ok()?).ok()?;
                    match extended.read_u8().ok()? {
                        operation::END => {
                            finish(before, address);
                            (address, file, line, before) = (0, 1, 1, None);
                        }
                        operation::SET_ADDRESS => address = extended.read_u64().ok()?,
                        _ => {}
                    }
                }
                operation::COPY => {
                    finish(before, address);
                    before = Some((address, file, line));
                }
                operation::ADVANCE => {
                    address = address.wrapping_add(advance(program.read_uleb128().ok()?));
                }
                operation::ADVANCE_LINE => {
                    line = line.wrapping_add(program.read_sleb128().ok()?);
                }
                operation::SET_FILE => file = program.read_uleb128().ok()?,
                operation::ADVANCE_AS_LAST => {
                    let special = 255 - first_special;
                    address = address.wrapping_add(advance(special / self.line_range));
                }
                operation::ADVANCE_FIXED => {
                    address = address.wrapping_add(program.read_u16().ok()?.into());
                }
                other => {
                    for _ in 0..*self.arguments.slice().get(usize::from(other) - 1)? {
                        program.read_uleb128().ok()?;
                    }
                }
            }
        }
        Some(())
    }

    /// Writes the path of file `number`, relative to `compiled_in` unless it is absolute.
    pub(super) fn path(
        &self,
        number: u64,
        compiled_in: &[u8],
        strings: Strings<'a>,
        to: &mut Text,
    ) -> Option<(usize, usize)> {
        let (name, folder) = match &self.files {
            Files::Old { folders, files } => {
                let mut files = *files;
                let mut left = number.checked_sub(1)?;
                let (name, folder) = loop {
                    let name = files.read_null_terminated_slice().ok().filter(|n| !n.is_empty())?;
                    let folder = files.read_uleb128().ok()?;
                    // The file's time and length.
                    files.read_uleb128().ok()?;
                    files.read_uleb128().ok()?;
                    if left == 0 {
                        break (name.slice(), folder);
                    }
                    left -= 1;
                };
                let mut folders = *folders;
                let mut found: &[u8] = b"";
                for _ in 0..folder {
                    found = folders.read_null_terminated_slice().ok()?.slice();
                    if found.is_empty() {
                        // The end of the list.
                        return None;
                    }
                }
                (name, found)
            }
            Files::New { folders, files } => {
                let (name, folder) = files.entry(number, self.wide, strings)?;
                let folder = folders.entry(folder, self.wide, strings);
                (name, folder.map_or(&b""[..], |(folder, _)| folder))
            }
        };
        /// The most bytes of a part of the path. A table with longer ones is damaged.
        const LONGEST: usize = 4096;
        if [compiled_in, folder, name].iter().any(|part| part.len() > LONGEST) {
            return None;
        }
        let begin = to.len();
        let mut copy = Mapped::new();
        for part in [compiled_in, folder, name] {
            // A copy, for the file may change.
            copy.truncate(0);
            if !copy.extend(part) {
                return None;
            }
            // An absolute part replaces those before it.
            if copy.starts_with(b"/") {
                to.truncate(begin);
            } else if to.len() > begin && !to.ends_with('/') && !copy.is_empty() {
                to.say(format_args!("/"));
            }
            copy.utf8_chunks().for_each(|chunk| to.say(format_args!("{}", chunk.valid())));
        }
        debug_assert!(self.version >= 2);
        Some((begin, to.len()))
    }
}

impl<'a> List<'a> {
    fn read(input: &mut Reader<'a>, wide: bool) -> Option<List<'a>> {
        let fields = input.read_u8().ok()?;
        let format = *input;
        for _ in 0..2 * u32::from(fields) {
            input.read_uleb128().ok()?;
        }
        let count = input.read_uleb128().ok()?;
        // Entries without fields take no bytes, so nothing would bound a wrong count of them.
        if fields == 0 && count > 0 {
            return None;
        }
        let list = List { format, fields, count, entries: *input };
        for _ in 0..count {
            list.field_by_field(input, wide, |_, _| ())?;
        }
        Some(list)
    }

    /// The name of entry `number`, and for a file the number of its folder.
    fn entry(&self, number: u64, wide: bool, strings: Strings<'a>) -> Option<(&'a [u8], u64)> {
        const NAME: u64 = 1;
        const FOLDER: u64 = 2;
        if number >= self.count {
            return None;
        }
        let mut entries = self.entries;
        for _ in 0..number {
            self.field_by_field(&mut entries, wide, |_, _| ())?;
        }
        let (mut name, mut folder) = (None, 0);
        self.field_by_field(&mut entries, wide, |what, field| match (what, field) {
            (NAME, Field::Text(text)) => name = Some(text),
            (NAME, Field::TextAt(offset)) => name = Strings::at(strings.of_all, offset),
            (NAME, Field::LineTextAt(offset)) => name = Strings::at(strings.of_lines, offset),
            (FOLDER, Field::Number(number)) => folder = number,
            _ => {}
        })?;
        Some((name?, folder))
    }

    /// Reads one entry.
    fn field_by_field(
        &self,
        input: &mut Reader<'a>,
        wide: bool,
        mut with: impl FnMut(u64, Field<'a>),
    ) -> Option<()> {
        let mut format = self.format;
        for _ in 0..self.fields {
            let what = format.read_uleb128().ok()?;
            let form = gimli::DwForm(format.read_uleb128().ok()?.try_into().ok()?);
            with(what, Field::read(input, form, wide)?);
        }
        Some(())
    }
}

enum Field<'a> {
    Text(&'a [u8]),
    TextAt(usize),
    LineTextAt(usize),
    Number(u64),
    /// A checksum.
    Other,
}

impl<'a> Field<'a> {
    fn read(input: &mut Reader<'a>, form: gimli::DwForm, wide: bool) -> Option<Field<'a>> {
        let format = if wide { gimli::Format::Dwarf64 } else { gimli::Format::Dwarf32 };
        Some(match form {
            gimli::DW_FORM_string => Field::Text(input.read_null_terminated_slice().ok()?.slice()),
            gimli::DW_FORM_strp => Field::TextAt(input.read_offset(format).ok()?),
            gimli::DW_FORM_line_strp => Field::LineTextAt(input.read_offset(format).ok()?),
            gimli::DW_FORM_udata => Field::Number(input.read_uleb128().ok()?),
            gimli::DW_FORM_data1 => Field::Number(input.read_u8().ok()?.into()),
            gimli::DW_FORM_data2 => Field::Number(input.read_u16().ok()?.into()),
            gimli::DW_FORM_data4 => Field::Number(input.read_u32().ok()?.into()),
            gimli::DW_FORM_data8 => Field::Number(input.read_u64().ok()?),
            gimli::DW_FORM_data16 => {
                input.skip(16).ok()?;
                Field::Other
            }
            gimli::DW_FORM_block => {
                let length = input.read_uleb128().ok()?;
                input.skip(usize::try_from(length).ok()?).ok()?;
                Field::Other
            }
            _ => return None,
        })
    }
}
