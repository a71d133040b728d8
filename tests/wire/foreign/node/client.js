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
// A consumer looks for its coordinator only when it joins again, and it joins again when it has no attempts left.
const CONSUMER_RETRY = { ...RETRY, retries: 5, restartOnFailure: async () => true }
const SESSION_MS = 6000
const FETCH_WAIT_MS = 200
const SETTLED_FETCHES = 12

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
  const consumer = kafka.consumer({
    groupId,
    retry: CONSUMER_RETRY,
    sessionTimeout: SESSION_MS,
    heartbeatInterval: 300,
    maxWaitTimeInMs: FETCH_WAIT_MS,
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let read = 0
  let finish
  const finished = new Promise(resolve => {
    finish = resolve
  })
  // When the last request for the group's offsets that has a response was sent.
  let askedMs = 0
  consumer.on(consumer.events.REQUEST, ({ payload }) => {
    if (payload.apiName === 'OffsetFetch') {
      askedMs = payload.sentAt
    }
  })
  // By partition, the record whose commit has no response yet; and when commits were acknowledged.
  const pending = new Map()
  const acknowledgedMs = new Map()
  const committed = partition => {
    const { row, rowAskedMs } = pending.get(partition)
    pending.delete(partition)
    const place = `${partition} ${row.offset}`
    // Under load KafkaJS 2.2.4 once delivered a record twice over a kill. The group lost a commit only if it was asked
    // for its offsets after the acknowledgement; otherwise the client repeated what it had.
    if (rowAskedMs <= acknowledgedMs.get(place)) {
      return
    }
    acknowledgedMs.set(place, Date.now())
    show(row)
    read += 1
    if (read === count) {
      finish()
    }
  }
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      const offset = Number(message.offset)
      // Only the response was lost, if the group goes on behind that record.
      if (pending.get(partition)?.row.offset < offset) {
        committed(partition)
      }
      if (read >= count) {
        return
      }
      const row = { partition, offset, value: Number(message.value.toString()) }
      pending.set(partition, { row, rowAskedMs: askedMs })
      await consumer.commitOffsets([{ topic, partition, offset: String(offset + 1) }])
      if (pending.get(partition)?.row === row) {
        committed(partition)
      }
    },
  })
  await finished
  // KafkaJS 2.2.4 never stops if it is told to while it learns of new leaders, which fetches make it do.
  let fetches = 0
  await new Promise(resolve => {
    consumer.on(consumer.events.FETCH, () => {
      fetches += 1
      if (fetches === SETTLED_FETCHES) {
        resolve()
      }
    })
  })
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
