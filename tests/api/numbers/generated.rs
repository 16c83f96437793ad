//! Random texts of numbers, and the value of each.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use proptest::{prop_oneof, sample::select};
use serde_json::Value;

/// The value of a number, in this process or in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberValue {
    Integer(i128),
    /// A number with a fraction, as the bits of the double.
    Fraction(u64),
    /// A number beyond the range of this test, as the bits of the double.
    Huge(u64),
}

impl NumberValue {
    /// The value of the text of a JSON number. `None` for an integer that no 64-bit integer type holds.
    pub(super) fn of(text: &str) -> Option<Self> {
        if text.contains(['.', 'e', 'E']) || text == "-0" {
            return Some(Self::of_double(text.parse().unwrap()));
        }
        let integer: i128 = text.parse().ok()?;
        (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&integer).then_some(Self::Integer(integer))
    }

    /// The value that JavaScript reads: every number is a double.
    pub(super) fn on_a_page(value: &Value) -> Self {
        Self::of_double(value.as_f64().unwrap())
    }

    pub(super) fn of_value(value: &Value) -> Self {
        Self::of(&value.to_string()).unwrap()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the bound")]
    fn of_double(double: f64) -> Self {
        if double.fract() != 0.0 {
            Self::Fraction(double.to_bits())
        } else if double.abs() < 1e36 {
            Self::Integer(double as i128)
        } else {
            Self::Huge(double.to_bits())
        }
    }
}

/// The text that a page sends back for a number that it was shown. JavaScript writes a double below 1e21
/// without an exponent, and never with `.0` (ECMA-262, Number::toString).
pub(super) fn echoed(value: &Value) -> String {
    let double = value.as_f64().unwrap();
    if double == 0.0 { "0".to_owned() } else { ryu_js::Buffer::new().format_finite(double).to_owned() }
}

/// Whether a page shows the exact value of this text: an integer that JavaScript holds exactly, or a double
/// whose digits in the page parse to the same double here.
pub(super) fn is_shown_exactly(text: &str) -> bool {
    let Some(meaning) = NumberValue::of(text) else { return false };
    let integer = !text.contains(['.', 'e', 'E']) && text != "-0";
    match meaning {
        NumberValue::Integer(n) if integer => n.unsigned_abs() < 1 << 53,
        _ => NumberValue::of(&echoed(&serde_json::from_str(text).unwrap())) == Some(meaning),
    }
}

/// This many texts of numbers, the same in every run.
pub(super) fn drawn(count: usize) -> Vec<String> {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let edges = select(vec![1_i128 << 53, 1 << 63, 1 << 64, -(1 << 53), -(1 << 63)]);
    let near = (edges, -3_i128..=3).prop_map(|(edge, off)| edge + off);
    let spelled =
        (near, select(vec!["", ".0", "e0", ".5"])).prop_map(|(integer, tail)| format!("{integer}{tail}"));
    let powers = (15_u32..=22, 1_u32..=9, -2_i128..=2, select(vec![false, true])).prop_map(
        |(power, digit, off, exponent)| match exponent {
            true => format!("{digit}e{power}"),
            false => (i128::from(digit) * 10_i128.pow(power) + off).to_string(),
        },
    );
    let zero = select(vec!["0", "-0", "-0.0", "0e5", "-0e-5"]).prop_map(str::to_owned);
    let long = ("-?[0-9]", "[0-9]{16,40}").prop_map(|(whole, fraction)| format!("{whole}.{fraction}"));
    let small = (-1_000_i32..1_000, "[0-9]{1,3}").prop_map(|(whole, cents)| format!("{whole}.{cents}"));
    let tiny = ("[1-9]\\.[0-9]{1,20}", 5_i32..320).prop_map(|(digits, power)| format!("{digits}e-{power}"));
    let all = prop_oneof![3 => spelled, 3 => powers, 1 => zero, 2 => long, 1 => small, 1 => tiny];
    (0..count).map(|_| all.new_tree(&mut runner).unwrap().current()).collect()
}

#[test]
fn the_drawn_numbers_contain_every_kind() {
    let all = drawn(120);
    let meanings: Vec<_> = all.iter().map(|text| NumberValue::of(text)).collect();
    let is = |wanted: fn(&NumberValue) -> bool| meanings.iter().flatten().any(wanted);
    assert!(meanings.contains(&None), "beyond 64 bits");
    assert!(is(|it| matches!(it, NumberValue::Fraction(_))));
    assert!(is(|it| matches!(it, NumberValue::Integer(0))));
    assert!(is(|it| matches!(it, NumberValue::Integer(n) if n.abs() > 1 << 53)));
    assert!(is(|it| matches!(it, NumberValue::Integer(n) if *n != 0 && n.abs() < 1 << 53)));
    assert!(all.iter().any(|text| text.contains('e')));
}
