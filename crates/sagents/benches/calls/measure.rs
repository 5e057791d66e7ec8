//! Times of two sides that take turns, and the tables that show them.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ROUNDS: usize = 40;
pub const BATCH: usize = 50;
pub const BESIDE_HAND: &str = "<= 1.15";
pub const FLAT: &str = "<= 1.30";

static QUICK: AtomicBool = AtomicBool::new(false);

/// Whether a few calls of each are enough.
pub fn set_quick(quick: bool) {
    QUICK.store(quick, Ordering::Relaxed);
}

/// So many, or a few.
pub fn at_most(count: usize, few: usize) -> usize {
    if QUICK.load(Ordering::Relaxed) { count.min(few) } else { count }
}

/// How much is measured.
pub fn calls() -> String {
    let (rounds, batch) = (at_most(ROUNDS, 2), at_most(BATCH, 3));
    format!("medians of {} calls a side, in turns of {batch}", rounds * batch)
}

/// Measures two sides in turns and prints their medians.
pub async fn compare<T, A, B>(
    name: &str,
    target: &str,
    prepare: impl AsyncFn(usize) -> T,
    one: impl AsyncFn(T) -> A,
    other: impl AsyncFn(T) -> B,
) {
    let (one, other) = measure(ROUNDS, BATCH, prepare, one, other).await;
    compared(name, one, other, target);
}

/// The medians of two sides that take turns. What a call needs is prepared outside of its time.
pub async fn measure<T, A, B>(
    rounds: usize,
    batch: usize,
    prepare: impl AsyncFn(usize) -> T,
    one: impl AsyncFn(T) -> A,
    other: impl AsyncFn(T) -> B,
) -> (Duration, Duration) {
    let (rounds, batch) = (at_most(rounds, 2), at_most(batch, 3));
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let numbers = round * batch..(round + 1) * batch;
        turn(numbers.clone(), &prepare, &one, &mut ones).await;
        turn(numbers, &prepare, &other, &mut others).await;
        if round == 0 {
            // It warmed up.
            ones.clear();
            others.clear();
        }
    }
    (median(ones), median(others))
}

async fn turn<T, R>(
    numbers: Range<usize>,
    prepare: &impl AsyncFn(usize) -> T,
    call: &impl AsyncFn(T) -> R,
    times: &mut Vec<Duration>,
) {
    let mut inputs = Vec::new();
    for n in numbers {
        inputs.push(prepare(n).await);
    }
    for input in inputs {
        let start = Instant::now();
        let answer = call(input).await;
        times.push(start.elapsed());
        black_box(answer);
    }
}

pub fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort();
    values[values.len() / 2]
}

/// The beginning of a table.
pub fn header(columns: [&str; 5]) {
    row(columns);
    println!("{}", "-".repeat(78));
}

pub fn compared(name: &str, one: Duration, other: Duration, last: &str) {
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    let ratio = format!("{:.2}", one.as_secs_f64() / other.as_secs_f64());
    row([name, &micros(one), &micros(other), &ratio, last]);
}

pub fn row([name, one, other, ratio, last]: [&str; 5]) {
    println!("{name:<34}{one:>13}{other:>14}{ratio:>8}{last:>9}");
}

pub fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.map_or("unknown CPU", |(_, name)| name))
}
