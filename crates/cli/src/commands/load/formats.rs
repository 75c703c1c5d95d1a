//! Formats of input files: each turns lines into records, and says of a bad one where it is and what is wrong.

use crate::failure::{Failure, Result};
use crate::output::take_bytes;
use serde_json::{Map, Value};
use std::io::BufRead;

/// How the input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Deb822,
    Tsv,
    Jsonl,
    Lines,
    Dump,
}

/// A pair to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// Where the input names one.
    pub(crate) keyspace: Option<String>,
}

/// A record that cannot be read.
pub(crate) type Bad = String;

/// Reads records from a file's lines.
pub(crate) struct Records {
    format: Format,
    key: String,
    /// tsv: which column, from 0.
    column: usize,
    input: Box<dyn BufRead>,
    bytes: u64,
    line_number: u64,
}

impl Records {
    /// Begins to read; for tsv, the header.
    pub(crate) fn new(format: Format, key: Option<&str>, input: Box<dyn BufRead>) -> Result<Self> {
        let key = match (format, key) {
            (Format::Deb822 | Format::Tsv | Format::Jsonl, None) => {
                return Err(Failure::Input(
                    "this format needs --key: which field or column is the key".to_owned(),
                ));
            }
            (Format::Lines, Some(other)) if other != "line" => {
                return Err(Failure::Input(format!(
                    "--key {other:?}: with lines, only `line` can be the key"
                )));
            }
            (_, key) => key.unwrap_or_default().to_owned(),
        };
        let mut records = Self { format, key, column: 0, input, bytes: 0, line_number: 0 };
        if format == Format::Tsv {
            records.read_header()?;
        }
        Ok(records)
    }

    /// Bytes of the input read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next record, or what is wrong with it; `None` at the end of the input.
    pub(crate) fn next(&mut self) -> Result<Option<std::result::Result<Record, Bad>>> {
        if self.format == Format::Deb822 {
            return self.next_stanza();
        }
        let Some(line) = self.line()? else { return Ok(None) };
        if line.is_empty() && self.format != Format::Lines {
            return self.next();
        }
        let record = match self.format {
            Format::Tsv => self.tsv(line),
            Format::Jsonl => self.jsonl(line),
            Format::Lines => Ok(self.numbered(line)),
            Format::Deb822 | Format::Dump => dumped(&line),
        };
        let number = self.line_number;
        Ok(Some(record.map_err(|why| format!("line {number}: {why}"))))
    }

    /// A line without its end; `None` at the end of the input.
    fn line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let n = self.input.read_until(b'\n', &mut line).map_err(Failure::io("read the input"))?;
        if n == 0 {
            return Ok(None);
        }
        self.bytes += n as u64;
        self.line_number += 1;
        for end in [b'\n', b'\r'] {
            if line.last() == Some(&end) {
                line.pop();
            }
        }
        Ok(Some(line))
    }

    fn read_header(&mut self) -> Result<()> {
        let header = self.line()?.unwrap_or_default();
        let columns: Vec<&[u8]> = header.split(|byte| *byte == b'\t').collect();
        let named = columns.iter().position(|column| *column == self.key.as_bytes());
        let numbered =
            self.key.parse::<usize>().ok().filter(|n| (1..=columns.len()).contains(n)).map(|n| n - 1);
        let names = || columns.iter().map(|c| String::from_utf8_lossy(c)).collect::<Vec<_>>().join(", ");
        let missing =
            || Failure::Input(format!("there is no column {:?}; the header has: {}", self.key, names()));
        self.column = named.or(numbered).ok_or_else(missing)?;
        Ok(())
    }

    fn tsv(&self, line: Vec<u8>) -> std::result::Result<Record, Bad> {
        let column = line.split(|byte| *byte == b'\t').nth(self.column).map(<[u8]>::to_vec);
        let key = column.ok_or_else(|| format!("there is no column {}", self.column + 1))?;
        Ok(Record { key, value: line, keyspace: None })
    }

    fn jsonl(&self, line: Vec<u8>) -> std::result::Result<Record, Bad> {
        let object: Map<String, Value> = serde_json::from_slice(&line).map_err(|error| error.to_string())?;
        let key = match object.get(&self.key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(_) => return Err(format!("field {:?} is neither text nor a number", self.key)),
            None => return Err(format!("there is no field {:?}", self.key)),
        };
        Ok(Record { key: key.into_bytes(), value: line, keyspace: None })
    }

    fn numbered(&self, line: Vec<u8>) -> Record {
        let key = match self.key.as_str() {
            "line" => line.clone(),
            _ => format!("{:012}", self.line_number).into_bytes(),
        };
        Record { key, value: line, keyspace: None }
    }

    fn next_stanza(&mut self) -> Result<Option<std::result::Result<Record, Bad>>> {
        let (mut stanza, mut key, mut began) = (Vec::new(), None, 0);
        while let Some(line) = self.line()? {
            let blank = line.iter().all(u8::is_ascii_whitespace);
            if blank && stanza.is_empty() {
                continue;
            }
            if blank {
                break;
            }
            if stanza.is_empty() {
                began = self.line_number;
            }
            if let Some(value) = field(&line, &self.key) {
                key.get_or_insert(value.to_vec());
            }
            stanza.extend_from_slice(&line);
            stanza.push(b'\n');
        }
        if stanza.is_empty() {
            return Ok(None);
        }
        let missing = || format!("the stanza at line {began} has no field {:?}", self.key);
        Ok(Some(key.ok_or_else(missing).map(|key| Record { key, value: stanza, keyspace: None })))
    }
}

/// The value of a field, if the line is of that name; field names ignore case.
fn field<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
}

fn dumped(line: &[u8]) -> std::result::Result<Record, Bad> {
    let object: Map<String, Value> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let take = |name: &str| {
        take_bytes(&object, name).ok_or_else(|| format!("there is no {name:?} or \"{name}_hex\""))
    };
    let keyspace = object.get("keyspace").and_then(Value::as_str).map(str::to_owned);
    Ok(Record { key: take("key")?, value: take("value")?, keyspace })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Keys and values, or what is wrong, a line each.
    fn read(format: Format, key: Option<&str>, input: &str) -> String {
        let mut records = match Records::new(format, key, Box::new(Cursor::new(input.to_owned()))) {
            Ok(records) => records,
            Err(failure) => return failure.to_string(),
        };
        let mut out = Vec::new();
        while let Some(record) = records.next().unwrap() {
            out.push(match record {
                Ok(r) => {
                    format!("{}={:?}", String::from_utf8_lossy(&r.key), String::from_utf8_lossy(&r.value))
                }
                Err(bad) => bad,
            });
        }
        assert_eq!(records.bytes(), input.len() as u64);
        out.join("\n")
    }

    #[test]
    fn stanzas_are_kept_whole() {
        let input = "\nPackage: a\nDepends: b,\n c\n\n\nSource: x\n\nPackage: b\n";
        let expected = "a=\"Package: a\\nDepends: b,\\n c\\n\"\nthe stanza at line 7 has no field \"package\"\nb=\"Package: b\\n\"";
        assert_eq!(read(Format::Deb822, Some("package"), input), expected);
    }

    #[test]
    fn columns_go_by_name_or_number() {
        let input = "id\tname\n1\tone\n2\n";
        assert_eq!(read(Format::Tsv, Some("name"), input), "one=\"1\\tone\"\nline 3: there is no column 2");
        assert_eq!(read(Format::Tsv, Some("1"), input), "1=\"1\\tone\"\n2=\"2\"");
        assert_eq!(read(Format::Tsv, Some("x"), input), "there is no column \"x\"; the header has: id, name");
    }

    #[test]
    fn json_fields_are_text_or_numbers() {
        let input = "{\"id\": \"a\"}\n\n{\"id\": 7}\n{\"id\": []}\n{}\nnonsense\n";
        let read = read(Format::Jsonl, Some("id"), input);
        let lines: Vec<_> = read.lines().collect();
        assert_eq!(lines[..2], ["a=\"{\\\"id\\\": \\\"a\\\"}\"", "7=\"{\\\"id\\\": 7}\""]);
        assert_eq!(lines[2], "line 4: field \"id\" is neither text nor a number");
        assert_eq!(lines[3], "line 5: there is no field \"id\"");
        assert!(lines[4].starts_with("line 6: "));
    }

    #[test]
    fn lines_are_numbered_or_their_own_keys() {
        assert_eq!(
            read(Format::Lines, None, "x\r\n\ny"),
            "000000000001=\"x\"\n000000000002=\"\"\n000000000003=\"y\""
        );
        assert_eq!(read(Format::Lines, Some("line"), "x\n"), "x=\"x\"");
    }

    #[test]
    fn dumps_are_read_back() {
        let input = "{\"key\":\"a\",\"value_hex\":\"ff00\"}\n{\"key\":\"a\"}\n";
        let read = read(Format::Dump, None, input);
        assert!(
            read.starts_with("a=") && read.ends_with("line 2: there is no \"value\" or \"value_hex\""),
            "{read}"
        );
    }
}
