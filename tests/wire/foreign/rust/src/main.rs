//! A client of a Kafka cluster for the tests in ../../test_foreign_clients.py, on krafka.
//!
//!     client admin BOOTSTRAP TOPIC             creates the topic, and creates and deletes another one
//!     client produce BOOTSTRAP TOPIC COUNT     appends 0, 1, 2, ... and prints every acknowledged record
//!     client consume BOOTSTRAP TOPIC GROUP COUNT    reads that many records with the group, and commits them
//!
//! Prints one JSON object per line.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::time::Duration;

use krafka::admin::{ConfigResource, NewTopic};
use krafka::consumer::{AutoOffsetReset, OffsetAndMetadata, TopicPartition};
use krafka::error::KrafkaError;
use krafka::{Kafka, Record};
use serde_json::json;

type Done = Result<(), Box<dyn Error>>;

const PARTITIONS: i32 = 3;
const LIMIT: Duration = Duration::from_secs(180);
const PACE: Duration = Duration::from_millis(1);
const POLL: Duration = Duration::from_millis(500);
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
        .build()
        .await?;
    consumer.subscribe([topic]).await?;
    let mut read = 0;
    while read < count {
        let mut next = HashMap::new();
        let records = match consumer.poll(POLL).await {
            Ok(records) => records,
            Err(error) => {
                retriable(error).await?;
                continue;
            }
        };
        for record in records.into_iter().take(count - read) {
            let value: i64 = record.value_str().ok_or("no text")?.parse()?;
            let row =
                json!({"partition": record.partition, "offset": record.offset, "value": value});
            println!("{row}");
            read += 1;
            next.insert(
                TopicPartition::new(topic, record.partition),
                OffsetAndMetadata::new(record.offset + 1),
            );
        }
        if !next.is_empty() {
            // A second commit of the same offsets changes nothing.
            while let Err(error) = consumer.commit_offsets(&next).await {
                retriable(error).await?;
            }
        }
    }
    consumer.close().await?;
    Ok(())
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
