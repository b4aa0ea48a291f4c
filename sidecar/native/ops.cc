// The op DistributedInputPack: an element of a split as the buffers of a block of rows, with the hashes of the rows.
//
// It uses only TensorFlow's stable C API, so one binary runs with every version from 2.16 on. The layout is that of
// distributed_input/rows/__init__.py, and the hashes are those of rows/digest.py, bit by bit: rows/encode.py is the
// reference, and graph/native_ops.py describes the plan and the result. If an element needs anything that this code does
// not do (an error message, a sort), the result is empty, and the worker encodes the element in Python.
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <vector>

#include "tensorflow_c_api.h"
#include "xxh3.h"

namespace {

// rows/digest.py has the reasons.
constexpr int64_t kVectorBytes = 512;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr int64_t kMaxRowBytes = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxRows = int64_t{1} << 40;  // so that sizes of columns do not overflow
constexpr size_t kAlignment = 64;

enum Kind : int64_t { kDense, kRagged, kSparse, kRaggedBatch };  // the last one: see AddRagged

// What the plan has for one leaf.
struct Leaf {
  int64_t kind;
  int64_t item_bytes;           // of a number; 0: a string
  int64_t ragged_rank;          // of a row
  bool is_static;               // a dense leaf, and all its sizes are known
  std::vector<int64_t> shape;   // of a row, or of an item of a ragged leaf; -1: unknown
};

using Plan = std::vector<Leaf>;

uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct Weights {
  uint64_t words[kVectorBytes / 8], high[kVectorBytes / 8];
  Weights() {
    for (uint64_t i = 0; i < kVectorBytes / 8; i++) {
      uint64_t first = MixBits((kGolden ^ i) + kGolden);
      words[i] = first | 1;
      high[i] = MixBits((first ^ 2) + kGolden) | 1;
    }
  }
};

const Weights kWeights;

uint64_t HashFixed(const uint8_t* p, size_t width) {
  if (width > kVectorBytes) return xxh3::Hash(p, width);
  uint64_t sum = 0, high = 0;
  size_t whole = width / 8, words = (width + 7) / 8;
  for (size_t i = 0; i < whole; i++) {
    uint64_t word = xxh3::Read64(p + 8 * i);
    sum += word * kWeights.words[i];
    high += (word >> 32) * kWeights.high[i];
  }
  if (words > whole) {
    uint64_t word = 0;
    memcpy(&word, p + 8 * whole, width - 8 * whole);
    sum += word * kWeights.words[whole];
    high += (word >> 32) * kWeights.high[whole];
  }
  return words == 1 ? sum : MixBits(sum) + high;
}

struct TensorDeleter {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, TensorDeleter>;

struct StatusDeleter {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
using Status = std::unique_ptr<TF_Status, StatusDeleter>;

const uint8_t* Data(const Tensor& tensor) {
  return static_cast<const uint8_t*>(TF_TensorData(tensor.get()));
}

// One buffer of the run. Its bytes are read from `data`, or from `owned`, or they are the strings.
struct Buffer {
  size_t bytes = 0;
  const uint8_t* data = nullptr;
  std::vector<uint8_t> owned;
  const TF_TString* strings = nullptr;
  int64_t string_count = 0;
  bool is_passed = false;  // the worker takes the component itself
};

// One column: how its rows are hashed.
struct Column {
  size_t values;            // index of the buffer
  int64_t width;            // bytes of a row; -1: see `lengths`
  size_t lengths = 0;       // index of the buffer of lengths
};

template <typename T>
T* Fill(Buffer* buffer, int64_t count) {
  buffer->bytes = sizeof(T) * count;
  buffer->owned.resize(buffer->bytes);
  buffer->data = buffer->owned.data();
  return reinterpret_cast<T*>(buffer->owned.data());
}

// Returns a * b, or -1 if that is too large. Both are at least 0.
int64_t Multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

class Packer {
 public:
  Packer(const Plan& plan, TF_OpKernelContext* context) : plan_(plan), context_(context) {}

  // Returns whether the element was packed; otherwise there is no output.
  bool Pack(TF_Status* status) {
    int count = TF_NumInputs(context_);
    for (int i = 0; i < count; i++) {
      TF_Tensor* tensor = nullptr;
      TF_GetInput(context_, i, &tensor, status);
      if (TF_GetCode(status) != TF_OK) return false;
      inputs_.emplace_back(tensor);
    }
    for (const Leaf& leaf : plan_) {
      bool fits = leaf.kind == kDense    ? AddDense(leaf)
                  : leaf.kind == kSparse ? AddSparse(leaf)
                                         : AddRagged(leaf);
      if (!fits) return false;
    }
    return rows_ >= 0 && next_ == inputs_.size() && Write(status);
  }

 private:
  const Tensor* Next(int64_t item_bytes) {
    if (next_ == inputs_.size()) return nullptr;
    const Tensor& tensor = inputs_[next_++];
    bool is_string = TF_TensorType(tensor.get()) == TF_STRING;
    if (is_string != (item_bytes == 0)) return nullptr;
    if (!is_string && TF_TensorByteSize(tensor.get()) !=
                          static_cast<size_t>(item_bytes * TF_TensorElementCount(tensor.get())))
      return nullptr;
    return &tensor;
  }

  bool SetRows(int64_t rows) {
    if ((rows_ >= 0 && rows_ != rows) || rows > kMaxRows) return false;
    rows_ = rows;
    return true;
  }

  // Adds a column of fixed width whose values are those of a buffer.
  Buffer* AddFixed(int64_t width) {
    buffers_.emplace_back(new Buffer);
    columns_.push_back({buffers_.size() - 1, width});
    return buffers_.back().get();
  }

  // Adds a column of variable width: the bytes of each row are in the result.
  Buffer* AddVariable(std::vector<int64_t> const& row_bytes, bool* fits) {
    buffers_.emplace_back(new Buffer);
    uint32_t* lengths = Fill<uint32_t>(buffers_.back().get(), rows_);
    for (int64_t i = 0; i < rows_; i++) {
      *fits = *fits && row_bytes[i] >= 0 && row_bytes[i] <= kMaxRowBytes;
      lengths[i] = static_cast<uint32_t>(row_bytes[i]);
    }
    buffers_.emplace_back(new Buffer);
    columns_.push_back({buffers_.size() - 1, -1, buffers_.size() - 2});
    return buffers_.back().get();
  }

  // Adds the columns of items: row i is the items [ends[i], ends[i + 1]).
  bool AddValues(const Leaf& leaf, const Tensor& tensor, const std::vector<int64_t>& ends, int64_t inner) {
    int64_t items = Multiply(ends[rows_], inner);
    if (items < 0 || ends[0] != 0 || items != TF_TensorElementCount(tensor.get())) return false;
    std::vector<int64_t> row_bytes(rows_);
    int64_t unit = Multiply(inner, leaf.item_bytes ? leaf.item_bytes : 4);
    if (unit < 0) return false;
    for (int64_t i = 0; i < rows_; i++) row_bytes[i] = Multiply(ends[i + 1] - ends[i], unit);
    bool fits = true;
    Buffer* buffer = AddVariable(row_bytes, &fits);
    if (leaf.item_bytes) {
      buffer->data = Data(tensor);
      buffer->bytes = items * leaf.item_bytes;
      return fits;
    }
    return fits && AddStrings(tensor, items, ends.data(), inner, buffer);
  }

  // Adds the lengths of strings to `lengths`, and then a column with the bytes of all strings. Row i has the strings
  // from ends[i] * inner on; without `ends`, each row has `inner` strings.
  bool AddStrings(const Tensor& tensor, int64_t items, const int64_t* ends, int64_t inner, Buffer* lengths) {
    auto* strings = static_cast<const TF_TString*>(TF_TensorData(tensor.get()));
    uint32_t* out = Fill<uint32_t>(lengths, items);
    std::vector<int64_t> row_bytes(rows_);
    int64_t at = 0;
    size_t total = 0;
    for (int64_t i = 0; i < rows_; i++) {
      int64_t end = (ends ? ends[i + 1] : i + 1) * inner;
      int64_t bytes = 0;
      for (; at < end; at++) {
        size_t size = StringSize(strings + at);
        if (size > static_cast<size_t>(kMaxRowBytes)) return false;
        out[at] = static_cast<uint32_t>(size);
        bytes += size;
      }
      row_bytes[i] = bytes;
      total += bytes;
    }
    bool fits = true;
    Buffer* data = AddVariable(row_bytes, &fits);
    data->bytes = total;
    data->strings = strings;
    data->string_count = items;
    return fits;
  }

  bool AddDense(const Leaf& leaf) {
    const Tensor* tensor = Next(leaf.item_bytes);
    if (tensor == nullptr) return false;
    int rank = TF_NumDims(tensor->get());
    if (rank != static_cast<int>(leaf.shape.size()) + 1 || !SetRows(TF_Dim(tensor->get(), 0))) return false;
    int64_t size = 1;
    std::vector<int32_t> dims;
    for (int i = 1; i < rank; i++) {
      int64_t dim = TF_Dim(tensor->get(), i), known = leaf.shape[i - 1];
      if ((known >= 0 && dim != known) || dim > std::numeric_limits<int32_t>::max()) return false;
      dims.push_back(static_cast<int32_t>(dim));
      size = Multiply(size, dim);
      if (size < 0) return false;
    }
    if (!leaf.is_static) {
      int32_t* out = Fill<int32_t>(AddFixed(4 * dims.size()), rows_ * dims.size());
      for (int64_t i = 0; i < rows_; i++)
        for (int32_t dim : dims) *out++ = dim;
      std::vector<int64_t> ends(rows_ + 1);
      for (int64_t i = 0; i <= rows_; i++) ends[i] = i;
      return AddValues(leaf, *tensor, ends, size);
    }
    Buffer* buffer = AddFixed(Multiply(leaf.item_bytes ? leaf.item_bytes : 4, size));
    if (!leaf.item_bytes) return AddStrings(*tensor, rows_ * size, nullptr, size, buffer);
    buffer->data = Data(*tensor);
    buffer->bytes = TF_TensorByteSize(tensor->get());
    buffer->is_passed = true;
    return true;
  }

  // Reads row splits: numbers from 0 on that do not fall.
  bool ReadSplits(std::vector<int64_t>* splits) {
    if (next_ == inputs_.size()) return false;
    const Tensor& tensor = inputs_[next_++];
    int64_t count = TF_TensorElementCount(tensor.get());
    TF_DataType type = TF_TensorType(tensor.get());
    if (TF_NumDims(tensor.get()) != 1 || count < 1 || (type != TF_INT32 && type != TF_INT64)) return false;
    splits->resize(count);
    for (int64_t i = 0; i < count; i++) {
      (*splits)[i] = type == TF_INT64 ? reinterpret_cast<const int64_t*>(Data(tensor))[i]
                                      : reinterpret_cast<const int32_t*>(Data(tensor))[i];
      if (i == 0 ? (*splits)[0] != 0 : (*splits)[i] < (*splits)[i - 1]) return false;
    }
    return true;
  }

  // A ragged leaf: the row splits of the batch, outermost first, and the values. Or a dense leaf in a batch of
  // `ragged_batch`: its first dimension differs between rows.
  bool AddRagged(const Leaf& leaf) {
    std::vector<int64_t> ends, level;
    if (!ReadSplits(&ends) || !SetRows(ends.size() - 1)) return false;
    std::vector<int64_t> row_bytes(rows_);
    for (int64_t depth = 0; depth < leaf.ragged_rank; depth++) {
      if (!ReadSplits(&level) || ends[rows_] != static_cast<int64_t>(level.size()) - 1) return false;
      for (int64_t i = 0; i < rows_; i++) row_bytes[i] = Multiply(4, ends[i + 1] - ends[i]);
      bool fits = true;
      int32_t* lengths = Fill<int32_t>(AddVariable(row_bytes, &fits), ends[rows_]);
      if (!fits) return false;
      for (int64_t i = 0; i < ends[rows_]; i++) {
        int64_t length = level[i + 1] - level[i];
        if (length > std::numeric_limits<int32_t>::max()) return false;
        lengths[i] = static_cast<int32_t>(length);
      }
      for (int64_t& end : ends) end = level[end];
    }
    const Tensor* values = Next(leaf.item_bytes);
    if (values == nullptr || TF_NumDims(values->get()) != static_cast<int>(leaf.shape.size()) + 1) return false;
    if (leaf.kind == kRaggedBatch) {
      int32_t* dims = Fill<int32_t>(AddFixed(4 * (leaf.shape.size() + 1)), rows_ * (leaf.shape.size() + 1));
      for (int64_t i = 0; i < rows_; i++) {
        if (ends[i + 1] - ends[i] > std::numeric_limits<int32_t>::max()) return false;
        *dims++ = static_cast<int32_t>(ends[i + 1] - ends[i]);
        for (int64_t size : leaf.shape) *dims++ = static_cast<int32_t>(size);
      }
    }
    int64_t inner = 1;
    for (size_t i = 0; i < leaf.shape.size(); i++) {
      if (TF_Dim(values->get(), i + 1) != leaf.shape[i]) return false;
      inner = Multiply(inner, leaf.shape[i]);
      if (inner < 0) return false;
    }
    return AddValues(leaf, *values, ends, inner);
  }

  // A sparse leaf: the ends of the batches in the indices, the indices, the values and the shape of each batch.
  bool AddSparse(const Leaf& leaf) {
    int64_t rank = leaf.shape.size();
    std::vector<int64_t> batch_ends;
    if (!ReadSplits(&batch_ends)) return false;
    const Tensor *indices = Next(8), *values = Next(leaf.item_bytes), *shapes = Next(8);
    if (!indices || !values || !shapes || TF_NumDims(shapes->get()) != 2 || TF_Dim(shapes->get(), 1) != rank + 1)
      return false;
    int64_t batches = TF_Dim(shapes->get(), 0), count = batch_ends.back();
    if (batches < 1 || batches != static_cast<int64_t>(batch_ends.size()) - 1) return false;
    if (TF_NumDims(indices->get()) != 2 || TF_Dim(indices->get(), 0) != count ||
        TF_Dim(indices->get(), 1) != rank + 1 || TF_NumDims(values->get()) != 1 || TF_Dim(values->get(), 0) != count)
      return false;
    auto* shape = reinterpret_cast<const int64_t*>(Data(*shapes));
    auto* index = reinterpret_cast<const int64_t*>(Data(*indices));
    int64_t rows = 0;
    for (int64_t batch = 0; batch < batches; batch++) {
      const int64_t* sizes = shape + batch * (rank + 1);
      if (sizes[0] < 0 || __builtin_add_overflow(rows, sizes[0], &rows)) return false;
      for (int64_t i = 1; i <= rank; i++)
        if (sizes[i] != shape[i] || (leaf.shape[i - 1] >= 0 && sizes[i] != leaf.shape[i - 1])) return false;
    }
    if (!SetRows(rows)) return false;
    std::vector<int64_t> ends(rows_ + 1), row_bytes(rows_);
    int64_t before = 0, row = 0;  // rows of earlier batches; rows whose end is known
    for (int64_t batch = 0; batch < batches; batch++) {
      int64_t size = shape[batch * (rank + 1)];
      for (int64_t i = batch_ends[batch]; i < batch_ends[batch + 1]; i++) {
        int64_t at = index[i * (rank + 1)];
        if (at < 0 || at >= size || at + before < row) return false;  // a sparse tensor may have any order
        for (; row < at + before; row++) ends[row + 1] = i;
      }
      before += size;
    }
    for (; row < rows_; row++) ends[row + 1] = count;
    int64_t* out = Fill<int64_t>(AddFixed(8 * rank), rows_ * rank);
    for (int64_t i = 0; i < rows_; i++)
      for (int64_t j = 0; j < rank; j++) *out++ = shape[j + 1];
    for (int64_t i = 0; i < rows_; i++) row_bytes[i] = Multiply(8 * rank, ends[i + 1] - ends[i]);
    bool fits = true;
    Buffer* buffer = AddVariable(row_bytes, &fits);
    if (!fits) return false;
    out = Fill<int64_t>(buffer, count * rank);
    for (int64_t i = 0; i < count; i++)
      for (int64_t j = 0; j < rank; j++) *out++ = index[i * (rank + 1) + 1 + j];
    return AddValues(leaf, *values, ends, 1);
  }

  // Writes int64: rows, buffers, begin of the hashes; for each buffer its begin and end, or -1 and -1 if it is a
  // component. Then uint64: the hash of each row. Then the buffers.
  bool Write(TF_Status* status) {
    size_t words = 3 + 2 * buffers_.size();
    size_t size = 8 * (words + rows_);
    std::vector<int64_t> header = {rows_, static_cast<int64_t>(buffers_.size()), static_cast<int64_t>(8 * words)};
    for (auto& buffer : buffers_) {
      if (buffer->is_passed) {
        header.insert(header.end(), {-1, -1});
        continue;
      }
      size = (size + kAlignment - 1) / kAlignment * kAlignment;
      header.push_back(size);
      size += buffer->bytes;
      header.push_back(size);
    }
    int64_t dim = size;
    Tensor output(TF_AllocateOutput(context_, 0, TF_UINT8, &dim, 1, size, status));
    if (TF_GetCode(status) != TF_OK) return false;
    auto* out = static_cast<uint8_t*>(TF_TensorData(output.get()));
    memcpy(out, header.data(), 8 * words);
    for (size_t i = 0; i < buffers_.size(); i++) {
      Buffer& buffer = *buffers_[i];
      if (buffer.is_passed) continue;
      uint8_t* to = out + header[3 + 2 * i];
      if (buffer.strings != nullptr) {
        buffer.data = to;
        for (int64_t j = 0; j < buffer.string_count; j++) {
          size_t length = StringSize(buffer.strings + j);
          if (length) memcpy(to, StringData(buffer.strings + j), length);
          to += length;
        }
      } else if (buffer.bytes) {
        memcpy(to, buffer.data, buffer.bytes);
      }
    }
    std::vector<uint64_t> hashes(rows_);
    for (const Column& column : columns_) AddHashes(column, hashes.data());
    if (rows_) memcpy(out + 8 * words, hashes.data(), 8 * rows_);
    return true;
  }

  void AddHashes(const Column& column, uint64_t* hashes) {
    const uint8_t* data = buffers_[column.values]->data;
    if (column.width >= 0) {
      for (int64_t i = 0; i < rows_; i++)
        hashes[i] = MixBits(hashes[i]) + HashFixed(data + i * column.width, column.width);
      return;
    }
    auto* lengths = reinterpret_cast<const uint32_t*>(buffers_[column.lengths]->data);
    for (int64_t i = 0; i < rows_; i++) {
      hashes[i] = MixBits(hashes[i]) + xxh3::Hash(data, lengths[i]);
      data += lengths[i];
    }
  }

  const Plan& plan_;
  TF_OpKernelContext* context_;
  std::vector<Tensor> inputs_;
  size_t next_ = 0;
  int64_t rows_ = -1;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Column> columns_;
};

void* CreatePack(TF_OpKernelConstruction* context) {
  Status status(TF_NewStatus());
  int32_t count = 0, bytes = 0;
  std::vector<int64_t> numbers;
  TF_OpKernelConstruction_GetAttrSize(context, "plan", &count, &bytes, status.get());
  if (TF_GetCode(status.get()) == TF_OK) {
    numbers.resize(count);
    TF_OpKernelConstruction_GetAttrInt64List(context, "plan", numbers.data(), count, status.get());
  }
  auto plan = std::make_unique<Plan>();
  for (size_t at = 0; TF_GetCode(status.get()) == TF_OK && at < numbers.size();) {
    uint64_t rank = numbers.size() - at < 5 ? 0 : numbers[at + 4];
    if (numbers.size() - at < 5 || rank > numbers.size() - at - 5 || numbers[at] < kDense || numbers[at] > kRaggedBatch ||
        numbers[at + 1] < 0 || numbers[at + 1] > 16) {
      TF_SetStatus(status.get(), TF_INVALID_ARGUMENT, "the plan is not valid");
      break;
    }
    auto begin = numbers.begin() + at + 5;
    plan->push_back({numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3] != 0, {begin, begin + rank}});
    at += 5 + rank;
  }
  if (TF_GetCode(status.get()) != TF_OK) {
    TF_OpKernelConstruction_Failure(context, status.get());
    return nullptr;
  }
  return plan.release();
}

void DeletePack(void* kernel) { delete static_cast<Plan*>(kernel); }

void ComputePack(void* kernel, TF_OpKernelContext* context) {
  Status status(TF_NewStatus());
  bool is_packed = false;
  try {
    is_packed = Packer(*static_cast<const Plan*>(kernel), context).Pack(status.get());
  } catch (const std::exception&) {  // no memory
  }
  if (!is_packed && TF_GetCode(status.get()) == TF_OK) {
    int64_t dim = 0;
    Tensor output(TF_AllocateOutput(context, 0, TF_UINT8, &dim, 1, 0, status.get()));
  }
  if (TF_GetCode(status.get()) != TF_OK) TF_OpKernelContext_Failure(context, status.get());
}

void SetUnknownShape(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

__attribute__((constructor)) void Register() {
  Status status(TF_NewStatus());
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("DistributedInputPack");
  TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  TF_OpDefinitionBuilderAddAttr(op, "plan: list(int)");
  TF_OpDefinitionBuilderAddInput(op, "components: T");
  TF_OpDefinitionBuilderAddOutput(op, "packed: uint8");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, SetUnknownShape);
  TF_RegisterOpDefinition(op, status.get());
  TF_KernelBuilder* kernel =
      TF_NewKernelBuilder("DistributedInputPack", "CPU", CreatePack, ComputePack, DeletePack);
  TF_RegisterKernelBuilder("DistributedInputPack", kernel, status.get());
}

}  // namespace
