#include "runtime/ir/builder/builder.h"

#include <algorithm>
#include <utility>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Returns the rows of a matrix of any rank, whose columns are the last dimension.
int64_t rows_of(const Shape& shape) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank; ++i) rows *= shape[i];
  return rows;
}

// Returns the operands of an op that reads documents where there are any.
std::vector<BufferId> with_documents(std::vector<BufferId> reads, BufferId documents) {
  if (documents != kNone) reads.push_back(documents);
  return reads;
}

}  // namespace

Builder::Builder(Program& program, const ForwardOptions& options)
    : program_(program), options_(options) {
  program_.dtype = options.dtype;
}

void Builder::unit(const std::string& name, const std::string& first_sublayer) {
  add_layer({.name = name}, first_sublayer);
}

std::string Builder::layer(const std::string& stack, int64_t number,
                           const std::string& first_sublayer) {
  add_layer({.name = fmt::format("{}.{}", stack, number), .number = number}, first_sublayer);
  return unit_name_;
}

void Builder::add_layer(Layer layer, const std::string& first_sublayer) {
  unit_name_ = layer.name;
  group_ = program_.add_group(layer.name);
  unit_index_ = static_cast<int>(program_.units.size());
  program_.units.push_back(
      {.name = layer.name, .first_sublayer = sublayer_ + 1, .sublayers = 0, .parameters = {}});
  program_.layers.push_back(std::move(layer));
  add_sublayer(first_sublayer);
}

void Builder::sublayer(const std::string& name) {
  check(unit_index_ >= 0 && !program_.sublayers.back().name.empty(),
        "sublayer {} follows one without a name", name);
  add_sublayer(name);
}

void Builder::add_sublayer(const std::string& name) {
  ++sublayer_;
  program_.sublayers.push_back({.layer = unit_index_, .name = name});
  ++program_.units.back().sublayers;
}

BufferId Builder::parameter(const std::string& name, Shape shape, Init init, float scale,
                            Trainable trainable) {
  return declare(name, shape, shape[0], init, scale, trainable);
}

BufferId Builder::vocabulary(const std::string& name, Shape shape, Init init, float scale,
                             Trainable trainable) {
  const int64_t m = options_.row_multiple;
  return declare(name, shape, (shape[0] + m - 1) / m * m, init, scale, trainable);
}

BufferId Builder::declare(const std::string& name, Shape shape, int64_t rows, Init init,
                          float scale, Trainable trainable) {
  const bool frozen = trainable == Trainable::no || tuning_.freezes(name);
  if (const BufferId known = program_.find("param:" + name); known != kNone) {
    const Parameter& p = program_.parameter(program_.at(known).parameter);
    check(p.shape == shape, "parameter {} is declared as {} and used as {}", name,
          to_string(p.shape), to_string(shape));
    check(p.frozen == frozen, "parameter {} is declared both as frozen and as trained", name);
    return known;
  }
  check(unit_index_ >= 0, "parameter {} is declared outside a unit", name);
  check(program_.find("buffer:" + name) == kNone, "parameter {} has the name of a buffer", name);
  Shape held = shape;
  held.dims[0] = rows;
  const auto index = static_cast<int>(program_.parameters.size());
  const BufferId value = program_.add_buffer({.name = "param:" + name,
                                              .shape = held,
                                              .dtype = options_.dtype,
                                              .memory = MemoryClass::parameters,
                                              .lifetime = Lifetime::persistent,
                                              .parameter = index,
                                              .model_parameter = index,
                                              .role = BufferRole::parameters});
  program_.unit(unit_index_).parameters.push_back(index);
  program_.parameters.push_back({.name = name,
                                 .index = index,
                                 .shape = shape,
                                 .init = init,
                                 .init_scale = scale,
                                 .frozen = frozen,
                                 .unit = unit_index_,
                                 .sublayer = sublayer_,
                                 .value = value});
  return value;
}

BufferId Builder::registered_buffer(const std::string& name, Shape shape, Init init) {
  check(unit_index_ >= 0, "buffer {} is declared outside a unit", name);
  check(init == Init::zeros || init == Init::ones, "buffer {} begins with zeros or ones", name);
  check(program_.find("param:" + name) == kNone && program_.find("buffer:" + name) == kNone,
        "buffer {} has the name of another buffer or of a parameter", name);
  const BufferId values = program_.add_buffer({.name = "buffer:" + name,
                                               .shape = shape,
                                               .memory = MemoryClass::parameters,
                                               .lifetime = Lifetime::persistent});
  program_.registered.push_back(
      {.name = name, .shape = shape, .init = init, .sublayer = sublayer_, .values = values});
  return values;
}

BufferId Builder::constant(const std::string& name, const Shape& shape, DType dtype,
                           const void* data) {
  check(dtype == DType::f32 || dtype == DType::i32, "constant {} is {}", name, name_of(dtype));
  const auto bytes = std::make_shared<const std::string>(
      static_cast<const char*>(data), static_cast<size_t>(shape.elements() * size_of(dtype)));
  // Programs of one run share what they have by its name.
  const std::string own =
      fmt::format("constant:{}.{}.{:x}", name, to_string(shape),
                  checksum_of(bytes->data(), static_cast<int64_t>(bytes->size())));
  if (const BufferId known = program_.find(own); known != kNone) return known;
  const BufferId id = program_.add_buffer({.name = own,
                                           .shape = shape,
                                           .dtype = dtype,
                                           .memory = MemoryClass::parameters,
                                           .lifetime = Lifetime::persistent});
  program_.constants.push_back({name, id, bytes});
  return id;
}

void Builder::update_buffer(BufferId buffer, BufferId value, BufferUpdate update) {
  if (!options_.training) return;
  const auto found = std::ranges::find(program_.registered, buffer, &RegisteredBuffer::values);
  check(found != program_.registered.end(), "{} is no registered buffer", program_.at(buffer).name);
  check(found->sum == kNone && found->sublayer == sublayer_,
        "{} is updated once, by the sublayer that declares it", found->name);
  found->keep = update.keep;
  found->share = update.share;
  found->per_sample = update.per_sample;
  found->towards_mean = update.towards_mean;
  found->sum = program_.add_buffer({.name = "buffer_sum:" + found->name,
                                    .shape = found->shape,
                                    .memory = MemoryClass::communication,
                                    .lifetime = Lifetime::step});
  append({.op = OpKind::accumulate,
          .accumulate = Accumulate::after_first_micro,
          .reads = {value},
          .writes = {found->sum},
          .group = group_,
          .sublayer = sublayer_});
}

BufferId Builder::cast(BufferId x) {
  if (program_.at(x).dtype == options_.dtype) return x;
  return emit(OpKind::cast, {}, {x},
              {.name = fresh("cast"), .shape = program_.at(x).shape, .dtype = options_.dtype});
}

BufferId Builder::column_sums(BufferId x) {
  return emit(OpKind::sum_rows, {}, {x},
              {.name = fresh("sums"), .shape = {program_.at(x).shape[-1]}});
}

BufferId Builder::embed(BufferId ids, BufferId token, BufferId position, int64_t seq_len,
                        BufferId documents) {
  const Shape shape{program_.at(ids).shape.elements(), program_.at(token).shape[1]};
  const BufferId places = position == kNone ? kNone : documents;
  return emit(OpKind::embed, EmbedAttrs{seq_len}, with_documents({ids, token, position}, places),
              activation_buffer("x", shape, token));
}

BufferId Builder::layer_norm(BufferId x, BufferId weight, BufferId bias, float eps) {
  const Shape shape = program_.at(x).shape;
  const Shape rows{rows_of(shape)};
  return emit(OpKind::layer_norm, LayerNormAttrs{eps}, {x, weight, bias},
              activation_buffer(stem(weight), shape, x),
              {{.name = fresh("mean"), .shape = rows}, {.name = fresh("rstd"), .shape = rows}});
}

Builder::BatchNormed Builder::batch_norm(BufferId x, BufferId weight, BufferId bias, float eps) {
  const Shape shape = program_.at(x).shape, columns{shape[-1]};
  const BufferId y = emit(
      OpKind::batch_norm, BatchNormAttrs{eps}, {x, weight, bias},
      activation_buffer(stem(weight), shape, x),
      {{.name = fresh("mean"), .shape = columns}, {.name = fresh("variance"), .shape = columns}});
  const std::vector<BufferId>& written = program_.instructions.back().writes;
  return {y, written[1], written[2]};
}

BufferId Builder::rms_norm(BufferId x, BufferId weight, const RmsNormAttrs& attrs) {
  const Shape shape = program_.at(x).shape;
  const int64_t group = std::max<int64_t>(1, program_.at(weight).shape.elements());
  return emit(OpKind::rms_norm, attrs, {x, weight}, activation_buffer(stem(weight), shape, x),
              {{.name = fresh("rstd"), .shape = {rows_of(shape), shape[-1] / group}}});
}

BufferId Builder::rotary(BufferId x, int64_t seq_len, const RotaryAttrs& attrs,
                         BufferId documents) {
  RotaryAttrs with_length = attrs;
  with_length.seq_len = seq_len;
  return emit(OpKind::rotary, with_length, with_documents({x}, documents),
              activation_buffer("rotated", program_.at(x).shape, x));
}

BufferId Builder::gated(BufferId gate, BufferId up, Activation kind) {
  return emit(OpKind::gated, ActivationAttrs{kind}, {gate, up},
              activation_buffer("gated", program_.at(gate).shape, gate));
}

BufferId Builder::linear(BufferId x, BufferId weight, BufferId bias, Activation activation) {
  const BufferId values = unpacked(weight);
  const Shape shape{rows_of(program_.at(x).shape), program_.at(values).shape[0]};
  const std::string module = adapted_module(weight);
  const Activation fused =
      activation == Activation::relu && module.empty() ? activation : Activation::none;
  BufferId y = emit(OpKind::linear, ActivationAttrs{fused}, {x, values, bias},
                    activation_buffer(stem(weight), shape, x));
  if (!module.empty()) y = add_adapter(y, x, values, module);
  return activation == fused ? y : this->activation(y, activation);
}

BufferId Builder::softcap(BufferId x, float cap) {
  return emit(OpKind::softcap, SoftcapAttrs{cap}, {x},
              activation_buffer("capped", program_.at(x).shape, x));
}

BufferId Builder::scale(BufferId x, float factor) {
  return emit(OpKind::scale, ScaleAttrs{factor}, {x},
              activation_buffer("scaled", program_.at(x).shape, x));
}

BufferId Builder::map(const Formula& formula, std::vector<BufferId> operands) {
  // The map that computes a gradient reads that of the result, too.
  check(!operands.empty() && operands.size() < Formula::kMostInputs,
        "a map of {} operands: expected 1 to {}", operands.size(), Formula::kMostInputs - 1);
  const BufferId first = operands.front();
  return emit(OpKind::map, MapAttrs{formula}, std::move(operands),
              activation_buffer("map", program_.at(first).shape, first));
}

BufferId Builder::activation(BufferId x, Activation kind) {
  return emit(OpKind::activation, ActivationAttrs{kind}, {x},
              activation_buffer("act", program_.at(x).shape, x));
}

BufferId Builder::attention(BufferId qkv, int64_t heads, int64_t seq_len, double dropout,
                            BufferId documents) {
  const Shape in = program_.at(qkv).shape;
  const AttentionAttrs attrs{.dropout = options_.training ? static_cast<float>(dropout) : 0.0f,
                             .site = next_site_++,
                             .heads = heads,
                             .seq_len = seq_len};
  return emit(OpKind::attention, attrs, with_documents({qkv}, documents),
              activation_buffer("att", {in[0], in[1] / 3}, qkv),
              {{.name = fresh("lse"), .shape = {in[0] / seq_len, heads, seq_len}}});
}

BufferId Builder::attention(BufferId q, BufferId k, BufferId v, const AttentionHeads& heads,
                            BufferId documents) {
  const Shape in = program_.at(q).shape;
  const AttentionAttrs attrs{
      .dropout = options_.training ? static_cast<float>(heads.dropout) : 0.0f,
      .site = next_site_++,
      .heads = heads.heads,
      .seq_len = heads.seq_len,
      .kv_heads = heads.kv_heads,
      .window = heads.window,
      .causal = heads.causal,
      .scale = heads.scale,
      .softcap = heads.softcap};
  return emit(
      OpKind::attention, attrs, with_documents({q, k, v}, documents),
      activation_buffer("att", in, q),
      {{.name = fresh("lse"), .shape = {rows_of(in) / heads.seq_len, heads.heads, heads.seq_len}}});
}

BufferId Builder::dropout(BufferId x, int64_t seq_len, double dropout) {
  const uint32_t site = next_site_++;
  if (!options_.training || dropout == 0) return x;
  const DropoutAttrs attrs{
      .dropout = static_cast<float>(dropout), .site = site, .seq_len = seq_len};
  return emit(OpKind::dropout_grad, attrs, {x},
              activation_buffer("dropped", program_.at(x).shape, x));
}

BufferId Builder::add_dropout(BufferId x, BufferId h, int64_t seq_len, double dropout) {
  const DropoutAttrs attrs{.dropout = options_.training ? static_cast<float>(dropout) : 0.0f,
                           .site = next_site_++,
                           .seq_len = seq_len};
  return emit(OpKind::add_dropout, attrs, {x, h}, activation_buffer("x", program_.at(x).shape, x));
}

void Builder::append(Instruction op) {
  for (const BufferId id : op.reads)
    if (id != kNone)
      check(std::ranges::find(overwritten_, id) == overwritten_.end(),
            "{} reads {}, which a loss has overwritten: use it before", name_of(op.op),
            program_.at(id).name);
  program_.instructions.push_back(std::move(op));
  if (options_.checked) check_op(program_, program_.instructions.back());
}

void Builder::output(BufferId logits) {
  program_.logits = logits;
  program_.at(logits).lifetime = Lifetime::step;
}

BufferId Builder::emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads, Buffer output,
                       std::vector<Buffer> more_outputs) {
  Instruction instruction{.op = op,
                          .attrs = std::move(attrs),
                          .reads = std::move(reads),
                          .group = group_,
                          .sublayer = std::max(sublayer_, 0)};
  instruction.writes.push_back(program_.add_buffer(std::move(output)));
  for (Buffer& b : more_outputs) instruction.writes.push_back(program_.add_buffer(std::move(b)));
  append(std::move(instruction));
  return program_.instructions.back().writes[0];
}

std::string Builder::stem(BufferId weight) const {
  std::string name = program_.at(weight).name;
  if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.resize(dot);
  return name.substr(name.rfind('.') == std::string::npos ? name.find(':') + 1
                                                          : name.rfind('.') + 1);
}

std::string Builder::fresh(std::string_view what) {
  // Numbered within the unit where a name comes again, so that every buffer can be told apart.
  const std::string name = fmt::format("{}.{}", unit_name_, what);
  const int count = ++names_[name];
  return count == 1 ? name : fmt::format("{}{}", name, count);
}

}  // namespace dstrain
