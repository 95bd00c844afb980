// The forward pass of an encoder by onnxruntime: the peer of `tsdiag probe DIR --probes fro`.
//
//     node benchmarks/onnxruntime_forward.mjs --model DIR --ids FILE --threads 2
//
// DIR is a BERT as `tsdiag init random:bert-base -o DIR` writes it, FILE a sample of ids a line, of one length.  The
// graph is written here, as the bytes of ONNX's protobuf, in the operators that onnxruntime fuses BERT to (contrib
// operators Attention or MultiHeadAttention, SkipLayerNormalization, BiasGelu); of the two attentions the faster is
// reported.  Weights are in memory, and packed, beforehand.
//
//     npm install --prefix SOMEWHERE --ignore-scripts onnxruntime-node    # the processor's library is in the package
//     ONNXRUNTIME=SOMEWHERE/node_modules/onnxruntime-node
//
// Prints JSON: seconds and processor seconds of a pass (medians over --repeat), minor page faults, the Frobenius norm
// of the last state of the first sample, the version.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";

const require = createRequire(import.meta.url);
const library = path.resolve(process.env.ONNXRUNTIME ?? "node_modules/onnxruntime-node");
const ort = require(library);

// Protobuf: fields of two wire types, varint (0) and length-delimited (2), and 32 bits (5).
const varint = (value) => {
  const bytes = [];
  for (let v = BigInt(value); ; v >>= 7n) {
    bytes.push(Number(v & 127n) | (v > 127n ? 128 : 0));
    if (v <= 127n) return Buffer.from(bytes);
  }
};
const number = (field, value) => [varint(field << 3), varint(value)];
const float = (field, value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return [varint((field << 3) | 5), bytes];
};
const bytes = (field, content) => {
  const parts = typeof content === "string" ? [Buffer.from(content)] : [content].flat(Infinity);
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  return [varint((field << 3) | 2), varint(size), ...parts];
};

// onnx.proto3: data types, attribute types, and the messages used.
const FLOAT = 1, INT32 = 6, ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2;
const attribute = (name, value, type) =>
  bytes(5, [bytes(1, name), type === ATTRIBUTE_INT ? number(3, value) : float(2, value), number(20, type)]);
const initializer = (name, shape, values) =>
  bytes(5, [shape.map((extent) => number(1, extent)), number(2, FLOAT), bytes(8, name),
    bytes(9, Buffer.from(values.buffer, values.byteOffset, values.byteLength))]);
const valueInfo = (field, name, type, shape) =>
  bytes(field, [bytes(1, name), bytes(2, bytes(1, [number(1, type), bytes(2, shape.map((e) => bytes(1, number(1, e))))]))]);
const node = (operator, inputs, outputs, attributes = [], domain = "com.microsoft") =>
  bytes(1, [inputs.map((i) => bytes(1, i)), outputs.map((o) => bytes(2, o)), bytes(4, operator), attributes, bytes(7, domain)]);

/// Tensors of a safetensors file in float32, as (shape, values).
function readWeights(file) {
  const all = fs.readFileSync(file), length = Number(all.readBigUInt64LE(0));
  const header = JSON.parse(all.subarray(8, 8 + length).toString());
  return (name) => {
    const { dtype, shape, data_offsets: [begin, end] } = header[name];
    if (dtype !== "F32") throw new Error(`${name} is ${dtype}, expected F32`);
    const copy = new Uint8Array(all.subarray(8 + length + begin, 8 + length + end));
    return { shape, values: new Float32Array(copy.buffer) };
  };
}

/// W^T beside one another: nn.Linear stores (out, in), MatMul reads (in, out).
function transposed(...weights) {
  const [, inner] = weights[0].shape, width = weights.reduce((sum, w) => sum + w.shape[0], 0);
  const values = new Float32Array(inner * width);
  let first = 0;
  for (const w of weights) {
    for (let o = 0; o < w.shape[0]; ++o)
      for (let i = 0; i < inner; ++i) values[i * width + first + o] = w.values[o * inner + i];
    first += w.shape[0];
  }
  return { shape: [inner, width], values };
}
function joined(...vectors) {
  const values = new Float32Array(vectors.reduce((sum, v) => sum + v.values.length, 0));
  let first = 0;
  for (const v of vectors) values.set(v.values, first), first += v.values.length;
  return { shape: [values.length], values };
}

function graph(config, get, samples, tokens, packed) {
  const initializers = [], nodes = [];
  const constant = (name, { shape, values }) => (initializers.push(initializer(name, shape, values)), name);
  const width = config.hidden_size, heads = attribute("num_heads", config.num_attention_heads, ATTRIBUTE_INT);
  const epsilon = attribute("epsilon", config.layer_norm_eps, ATTRIBUTE_FLOAT);
  const own = (name) => constant(name, get(name));

  const embed = "embeddings.";
  nodes.push(node("EmbedLayerNormalization", ["ids", "segments", ...["word", "position", "token_type"].map(
    (table) => own(`${embed}${table}_embeddings.weight`)), own(`${embed}LayerNorm.weight`), own(`${embed}LayerNorm.bias`)],
  ["x0", "mask"], [epsilon]));
  let x = "x0";
  const product = (input, map, output) =>
    nodes.push(node("MatMul", [input, constant(`${map}.T`, transposed(get(`${map}.weight`)))], [output], [], ""));
  const addNorm = (branch, map, norm, output) => {
    nodes.push(node("SkipLayerNormalization", [branch, x, own(`${norm}.weight`), own(`${norm}.bias`), own(`${map}.bias`)],
      [output], [epsilon]));
    x = output;
  };
  for (let l = 0; l < config.num_hidden_layers; ++l) {
    const layer = `encoder.layer.${l}.`, maps = ["query", "key", "value"].map((m) => `${layer}attention.self.${m}`);
    const bias = constant(`${layer}bias`, joined(...maps.map((m) => get(`${m}.bias`))));
    if (packed) {
      const weight = constant(`${layer}qkv`, transposed(...maps.map((m) => get(`${m}.weight`))));
      nodes.push(node("Attention", [x, weight, bias], [`a${l}`], [heads]));
    } else {
      maps.forEach((map, i) => product(x, map, `${"qkv"[i]}${l}`));
      nodes.push(node("MultiHeadAttention", [`q${l}`, `k${l}`, `v${l}`, bias], [`a${l}`], [heads]));
    }
    product(`a${l}`, `${layer}attention.output.dense`, `o${l}`);
    addNorm(`o${l}`, `${layer}attention.output.dense`, `${layer}attention.output.LayerNorm`, `y${l}`);
    product(x, `${layer}intermediate.dense`, `u${l}`);
    nodes.push(node("BiasGelu", [`u${l}`, own(`${layer}intermediate.dense.bias`)], [`g${l}`]));
    product(`g${l}`, `${layer}output.dense`, `d${l}`);
    addNorm(`d${l}`, `${layer}output.dense`, `${layer}output.LayerNorm`, `x${l + 1}`);
  }
  const shape = [samples, tokens];
  const body = [nodes, bytes(2, "encoder"), initializers, valueInfo(11, "ids", INT32, shape),
    valueInfo(11, "segments", INT32, shape), valueInfo(12, x, FLOAT, [...shape, width])];
  const opset = (domain, version) => bytes(8, [bytes(1, domain), number(2, version)]);
  return Buffer.concat([number(1, 8), bytes(7, body), opset("", 17), opset("com.microsoft", 1)].flat(Infinity));
}

const median = (values) => values.toSorted?.((a, b) => a - b)[values.length >> 1] ?? [...values].sort((a, b) => a - b)[values.length >> 1];

async function measure(model, ids, shape, options) {
  const session = await ort.InferenceSession.create(model, {
    executionProviders: ["cpu"], graphOptimizationLevel: "all", intraOpNumThreads: options.threads, interOpNumThreads: 1,
  });
  const feeds = { ids: new ort.Tensor("int32", ids, shape), segments: new ort.Tensor("int32", new Int32Array(ids.length), shape) };
  let state = (await session.run(feeds))[session.outputNames[0]].data;  // warm-up
  const wall = [], processor = [], faults = [];
  for (let i = 0; i < options.repeat; ++i) {
    const begin = performance.now(), used = process.cpuUsage(), before = process.resourceUsage().minorPageFault;
    state = (await session.run(feeds))[session.outputNames[0]].data;
    wall.push((performance.now() - begin) / 1e3);
    const { user, system } = process.cpuUsage(used);
    processor.push((user + system) / 1e6);
    faults.push(process.resourceUsage().minorPageFault - before);
  }
  const first = state.subarray(0, state.length / shape[0]);
  await session.release();
  return { seconds: median(wall), processor: median(processor), faults: median(faults),
    fro: Math.sqrt(first.reduce((sum, value) => sum + value * value, 0)) };
}

const { values: given } = parseArgs({ options: {
  model: { type: "string" }, ids: { type: "string" }, threads: { type: "string", default: "1" }, repeat: { type: "string", default: "5" },
} });
const options = { threads: Number(given.threads), repeat: Number(given.repeat) };
const config = JSON.parse(fs.readFileSync(path.join(given.model, "config.json"), "utf8"));
const rows = fs.readFileSync(given.ids, "utf8").trim().split("\n").map((line) => line.trim().split(/[\s,]+/).map(Number));
const shape = [rows.length, rows[0].length];
const get = readWeights(path.join(given.model, "model.safetensors"));
const results = {};
for (const [name, packed] of [["Attention", true], ["MultiHeadAttention", false]])
  results[name] = await measure(graph(config, get, ...shape, packed), Int32Array.from(rows.flat()), shape, options);
const [attention, best] = Object.entries(results).sort(([, a], [, b]) => a.processor - b.processor)[0];
const version = JSON.parse(fs.readFileSync(path.join(library, "package.json"), "utf8")).version;
console.log(JSON.stringify({ samples: shape[0], tokens: shape[1], ...best, attention, results, version }));
