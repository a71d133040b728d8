//! A client of a Kafka cluster for the tests in ../../test_foreign_clients.py, on krafka.
//!
//!     client admin BOOTSTRAP TOPIC             creates the topic, and creates and deletes another one
//!     client produce BOOTSTRAP TOPIC COUNT     appends 0, 1, 2, ... and prints every acknowledged record
//!     client consume BOOTSTRAP TOPIC GROUP COUNT    reads that many records or some more with the group, commits
//!                                                   them, and prints those that are committed
//!
//! Prints one JSON object per line.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;
use std::time::Duration;

use krafka::admin::{ConfigResource, NewTopic};
use krafka::consumer::{AutoOffsetReset, Consumer, OffsetAndMetadata, TopicPartition};
use krafka::error::KrafkaError;
use krafka::{Kafka, Record};
use serde_json::json;

/// By partition, the offsets and values that are not committed yet.
type Pending = BTreeMap<i32, Vec<(i64, i64)>>;
type Done = Result<(), Box<dyn Error>>;

const PARTITIONS: i32 = 3;
const LIMIT: Duration = Duration::from_secs(180);
const PACE: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(500);
/// When a coordinator moves, krafka 0.28 joins as a new member, and waits until the session of the old one ends.
const SESSION: Duration = Duration::from_secs(6);
const HEARTBEAT: Duration = Duration::from_secs(1);
/// krafka 0.28 does not ask for new leaders when a broker that it fetches from is down; `fetch_metadata` does at this age.
const METADATA_AGE: Duration = Duration::from_secs(1);
/// Between two attempts; krafka reports a broker that is down to its caller.
const PAUSE: Duration = Duration::from_millis(100);
/// The client waits for the oldest record while this many are not acknowledged.
const IN_FLIGHT_MAX: usize = 100;

async fn administer(kafka: &Kafka, topic: &str) -> Done {
    let admin = kafka.admin();
    let gone = format!("{topic}-gone");
    let wanted = |name: &str| -> Result<NewTopic, Box<dyn Error>> {
        Ok(NewTopic::new(name, PARTITIONS, 3)?.with_config("min.insync.replicas", "2"))
    };
    for (_, result) in admin
        .create_topics([wanted(topic)?, wanted(&gone)?], Default::default())
        .await?
    {
        result?;
    }
    let again = admin
        .create_topics([wanted(topic)?], Default::default())
        .await?;
    for (_, result) in admin.delete_topics([&gone], Default::default()).await? {
        result?;
    }
    let mut configs = serde_json::Map::new();
    let resources = [ConfigResource::topic(topic)];
    for (_, result) in admin
        .describe_configs(resources, Default::default())
        .await?
    {
        for entry in result?
            .into_iter()
            .filter(|one| one.name == "min.insync.replicas")
        {
            configs.insert(entry.name, json!(entry.value));
        }
    }
    let mut partitions = Vec::new();
    for (_, result) in admin.describe_topics([topic], Default::default()).await? {
        partitions.extend(result?.partitions);
    }
    let names = admin.list_topics(Default::default()).await?;
    println!(
        "{}",
        json!({
            "partitions": partitions.len(),
            "replicas": partitions.iter().map(|one| one.replicas.len()).sum::<usize>(),
            "configs": configs,
            "exists": again.values().all(|result| result.is_err()),
            "listed": names.iter().any(|name| name == topic),
            "gone": !names.contains(&gone),
        })
    );
    admin.close().await?;
    Ok(())
}

async fn produce(kafka: &Kafka, topic: &str, count: i64) -> Done {
    let producer = kafka.producer().delivery_timeout(LIMIT).build().await?;
    let mut in_flight = VecDeque::new();
    for value in 0..count {
        let partition = (value % i64::from(PARTITIONS)) as i32;
        let record = Record::new(topic, value.to_string()).partition(partition);
        in_flight.push_back((value, producer.enqueue(record).await?));
        if in_flight.len() == IN_FLIGHT_MAX {
            acknowledged(in_flight.pop_front()).await?;
        }
        tokio::time::sleep(PACE).await;
    }
    while !in_flight.is_empty() {
        acknowledged(in_flight.pop_front()).await?;
    }
    producer.close().await?;
    Ok(())
}

async fn acknowledged(oldest: Option<(i64, krafka::producer::DeliveryHandle)>) -> Done {
    if let Some((value, handle)) = oldest {
        let found = handle.await?;
        let row = json!({"partition": found.partition, "offset": found.offset, "value": value});
        println!("{row}");
    }
    Ok(())
}

async fn consume(kafka: &Kafka, topic: &str, group: &str, count: usize) -> Done {
    let consumer = kafka
        .consumer(group)
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .enable_auto_commit(false)
        .max_poll_records(100)
        .session_timeout(SESSION)
        .heartbeat_interval(HEARTBEAT)
        .build()
        .await?;
    consumer.subscribe([topic]).await?;
    let mut read = 0;
    let mut pending = Pending::new();
    let mut is_unsure = false;
    while read < count {
        // A member that has lost its place joins again only if it polls, so nothing is retried without.
        let records = match consumer.poll(POLL).await {
            Ok(records) => records,
            Err(error) => {
                retriable(error).await?;
                continue;
            }
        };
        if is_unsure {
            match go_back(&consumer, topic, &mut pending).await {
                Ok(printed) => {
                    read += printed;
                    is_unsure = false;
                }
                Err(error) => retriable(error).await?,
            }
            continue;
        }
        if records.is_empty() {
            if let Err(error) = consumer.fetch_metadata(Some(topic)).await {
                retriable(error).await?;
            }
            continue;
        }
        for record in records {
            let value: i64 = record.value_str().ok_or("no text")?.parse()?;
            let rows = pending.entry(record.partition).or_default();
            rows.push((record.offset, value));
        }
        let next: HashMap<_, _> = pending
            .iter()
            .filter_map(|(partition, rows)| {
                let (last, _) = rows.last()?;
                Some((
                    TopicPartition::new(topic, *partition),
                    OffsetAndMetadata::new(last + 1),
                ))
            })
            .collect();
        match consumer.commit_offsets(&next).await {
            Ok(()) => {
                for (partition, rows) in std::mem::take(&mut pending) {
                    read += show(partition, &rows);
                }
            }
            Err(error) if error.is_fatal() => return Err(error.into()),
            Err(_) => is_unsure = true,
        }
    }
    consumer.close().await?;
    Ok(())
}

/// Prints the records of a partition and returns how many they are.
fn show(partition: i32, rows: &[(i64, i64)]) -> usize {
    for (offset, value) in rows {
        let row = json!({"partition": partition, "offset": offset, "value": value});
        println!("{row}");
    }
    rows.len()
}

/// Goes back to what the group has committed, which may be what a commit without response asked for.
///
/// Prints the pending records that are committed, forgets the others, and returns how many it printed.
async fn go_back(
    consumer: &Consumer,
    topic: &str,
    pending: &mut Pending,
) -> Result<usize, KrafkaError> {
    let wanted: Vec<_> = (0..PARTITIONS)
        .map(|partition| (topic, partition))
        .collect();
    let committed = consumer.committed(&wanted).await?;
    let mut printed = 0;
    for partition in 0..PARTITIONS {
        let next = committed
            .get(&(topic.to_string(), partition))
            .map_or(0, |found| found.offset);
        let mut rows = pending.remove(&partition).unwrap_or_default();
        rows.retain(|(offset, _)| *offset < next);
        printed += show(partition, &rows);
        // Fails if the partition is not assigned, and then begins at that offset when it is.
        let _ = consumer.seek(topic, partition, next).await;
    }
    Ok(printed)
}

/// Waits if the same call may succeed later, else returns the error.
async fn retriable(error: KrafkaError) -> Done {
    if !error.is_retriable() {
        return Err(error.into());
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

async fn run() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, bootstrap, topic, rest @ ..] = arguments.as_slice() else {
        return Err("COMMAND BOOTSTRAP TOPIC ...".into());
    };
    let kafka = Kafka::builder(bootstrap)
        .client_id("foreign-rust")
        .metadata_max_age(METADATA_AGE)
        .connect()
        .await?;
    match (command.as_str(), rest) {
        ("admin", []) => administer(&kafka, topic).await,
        ("produce", [count]) => produce(&kafka, topic, count.parse()?).await,
        ("consume", [group, count]) => consume(&kafka, topic, group, count.parse()?).await,
        _ => Err(format!("unknown command {command}").into()),
    }
}

#[tokio::main]
async fn main() -> Done {
    tokio::time::timeout(LIMIT, run()).await?
}
