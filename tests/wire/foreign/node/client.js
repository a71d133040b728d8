// A client of a Kafka cluster for the tests in ../../test_foreign_clients.py, on KafkaJS.
//
//   client.js admin BOOTSTRAP TOPIC             creates the topic, and creates and deletes another one
//   client.js produce BOOTSTRAP TOPIC COUNT     appends 0, 1, 2, ... and prints every acknowledged record
//   client.js consume BOOTSTRAP TOPIC GROUP COUNT    reads that many records with the group, and commits them
//
// Prints one JSON object per line.
'use strict'

const { ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')

const PARTITIONS = 3
const LIMIT_MS = 180_000
const PACE_MS = 10
const BATCH = 10
const RETRY = { initialRetryTime: 100, maxRetryTime: 1000, retries: 150 }

const show = value => process.stdout.write(`${JSON.stringify(value)}\n`)
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function administer(kafka, topic) {
  const admin = kafka.admin()
  await admin.connect()
  const gone = `${topic}-gone`
  const options = {
    numPartitions: PARTITIONS,
    replicationFactor: 3,
    configEntries: [{ name: 'min.insync.replicas', value: '2' }],
  }
  await admin.createTopics({
    waitForLeaders: true,
    topics: [topic, gone].map(name => ({ topic: name, ...options })),
  })
  const again = await admin.createTopics({ topics: [{ topic, ...options }] })
  await admin.deleteTopics({ topics: [gone] })
  const described = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [
      { type: ConfigResourceTypes.TOPIC, name: topic, configNames: ['min.insync.replicas'] },
    ],
  })
  const configs = {}
  for (const entry of described.resources[0].configEntries) {
    configs[entry.configName] = entry.configValue
  }
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  const { partitions } = metadata.topics[0]
  const names = await admin.listTopics()
  show({
    partitions: partitions.length,
    replicas: partitions.reduce((sum, one) => sum + one.replicas.length, 0),
    configs,
    exists: !again,
    listed: names.includes(topic),
    gone: !names.includes(gone),
  })
  await admin.disconnect()
}

async function produce(kafka, topic, count) {
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: () => ({ message }) => message.partition,
  })
  await producer.connect()
  // One partition per call: if a call concerns several brokers and a leader moves to one that has responded already,
  // KafkaJS 2.2.4 does not send the records again, and reuses their sequence numbers for others.
  for (let first = 0; first < count; first += BATCH * PARTITIONS) {
    for (let partition = 0; partition < PARTITIONS; partition += 1) {
      const values = []
      for (let index = 0; index < BATCH; index += 1) {
        values.push(first + index * PARTITIONS + partition)
      }
      const messages = values
        .filter(value => value < count)
        .map(value => ({ partition, value: String(value) }))
      const [{ baseOffset }] = await producer.send({ topic, acks: -1, messages })
      messages.forEach(({ value }, index) => {
        show({ partition, offset: Number(baseOffset) + index, value: Number(value) })
      })
    }
    await pause(PACE_MS)
  }
  await producer.disconnect()
}

async function consume(kafka, topic, groupId, count) {
  const consumer = kafka.consumer({ groupId, retry: RETRY, heartbeatInterval: 300 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let read = 0
  let finish
  const finished = new Promise(resolve => {
    finish = resolve
  })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (read >= count) {
        return
      }
      const next = (BigInt(message.offset) + 1n).toString()
      await consumer.commitOffsets([{ topic, partition, offset: next }])
      show({ partition, offset: Number(message.offset), value: Number(message.value.toString()) })
      read += 1
      if (read === count) {
        finish()
      }
    },
  })
  await finished
  await consumer.disconnect()
}

async function main([command, bootstrap, topic, ...rest]) {
  const kafka = new Kafka({
    brokers: bootstrap.split(','),
    clientId: 'foreign-node',
    logLevel: logLevel.NOTHING,
    retry: RETRY,
  })
  if (command === 'admin') {
    await administer(kafka, topic)
  } else if (command === 'produce') {
    await produce(kafka, topic, Number(rest[0]))
  } else if (command === 'consume') {
    await consume(kafka, topic, rest[0], Number(rest[1]))
  } else {
    throw new Error(`unknown command ${command}`)
  }
}

setTimeout(() => {
  process.stderr.write('not finished in time\n')
  process.exit(1)
}, LIMIT_MS).unref()
main(process.argv.slice(2)).catch(error => {
  process.stderr.write(`${error.stack}\n`)
  process.exit(1)
})
