// The functions of TensorFlow's C API that the ops use, with TensorFlow's own names: from tensorflow/c/kernels.h, ops.h,
// tf_tensor.h and tf_status.h. They are equal in all versions from 2.16 to 2.21. With these declarations,
// the library is built without TensorFlow, so that a build needs a compiler only.
#ifndef DISTRIBUTED_INPUT_TENSORFLOW_C_API_H_
#define DISTRIBUTED_INPUT_TENSORFLOW_C_API_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {

enum TF_DataType { TF_INT32 = 3, TF_UINT8 = 4, TF_STRING = 7, TF_INT64 = 9 };
enum TF_Code { TF_OK = 0, TF_INVALID_ARGUMENT = 3 };

// An element of a string tensor. The layout is a part of the C API (ctstring_internal.h), and the functions that read it are
// inline there: TensorFlow 2.16 does not export them. The low two bits of the first number are the type.
struct TF_TString {
  alignas(8) uint8_t bytes[24];
};

struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_Status;
struct TF_Tensor;

TF_Status* TF_NewStatus(void);
void TF_DeleteStatus(TF_Status*);
void TF_SetStatus(TF_Status*, TF_Code, const char* message);
TF_Code TF_GetCode(const TF_Status*);

void TF_DeleteTensor(TF_Tensor*);
TF_DataType TF_TensorType(const TF_Tensor*);
int TF_NumDims(const TF_Tensor*);
int64_t TF_Dim(const TF_Tensor*, int dimension);
size_t TF_TensorByteSize(const TF_Tensor*);
void* TF_TensorData(const TF_Tensor*);
int64_t TF_TensorElementCount(const TF_Tensor*);

int TF_NumInputs(TF_OpKernelContext*);
void TF_GetInput(TF_OpKernelContext*, int index, TF_Tensor**, TF_Status*);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int index, TF_DataType, const int64_t* dims, int rank, size_t bytes,
                             TF_Status*);
void TF_OpKernelContext_Failure(TF_OpKernelContext*, TF_Status*);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction*, TF_Status*);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction*, const char* name, int32_t* list_size,
                                         int32_t* total_size, TF_Status*);
void TF_OpKernelConstruction_GetAttrInt64List(TF_OpKernelConstruction*, const char* name, int64_t* values,
                                              int max_values, TF_Status*);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char* attr);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char* input);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char* output);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*,
                                                     void (*)(TF_ShapeInferenceContext*, TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder*, TF_Status*);
TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*), void (*remove)(void*));
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder*, TF_Status*);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext*, TF_Status*);

}  // extern "C"

enum TF_TString_Type { TF_TSTR_SMALL = 0, TF_TSTR_LARGE = 1, TF_TSTR_OFFSET = 2, TF_TSTR_VIEW = 3 };

inline size_t StringSize(const TF_TString* string) {
  uint64_t size;
  memcpy(&size, string->bytes, sizeof(size));
  switch (size & 3) {
    case TF_TSTR_SMALL:
      return (size & 0xFF) >> 2;
    case TF_TSTR_OFFSET:
      return (size & 0xFFFFFFFF) >> 2;
    default:
      return size >> 2;
  }
}

inline const uint8_t* StringData(const TF_TString* string) {
  const uint8_t* data;
  uint32_t offset;
  switch (string->bytes[0] & 3) {
    case TF_TSTR_SMALL:
      return string->bytes + 1;
    case TF_TSTR_LARGE:  // size, capacity, pointer
      memcpy(&data, string->bytes + 16, sizeof(data));
      return data;
    case TF_TSTR_OFFSET:  // size, offset from here, capacity
      memcpy(&offset, string->bytes + 4, sizeof(offset));
      return string->bytes + offset;
    default:  // size, pointer
      memcpy(&data, string->bytes + 8, sizeof(data));
      return data;
  }
}

#endif  // DISTRIBUTED_INPUT_TENSORFLOW_C_API_H_
