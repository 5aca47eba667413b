/* Prints the properties of GPU 0 as cuDNN keeps them, JSON: with them cuDNN makes plans for this GPU
 * on a machine without one. tests/gpu/run compiles it. */
#include <cudnn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    cudnnBackendDescriptor_t device = NULL;
    const int32_t ordinal = 0;
    int64_t bytes = 0;
    char *json = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device);
    if (!status)
        status = cudnnBackendSetAttribute(device, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32,
                                          1, &ordinal);
    if (!status) status = cudnnBackendFinalize(device);
    if (!status)
        status = cudnnBackendGetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, 0, &bytes, NULL);
    if (!status) json = calloc(1, (size_t)bytes + 1);
    if (!status)
        status = cudnnBackendGetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, bytes, &bytes, json);
    if (status)
        fprintf(stderr, "device_json: cuDNN: %s\n", cudnnGetErrorString(status));
    else
        puts(json);
    free(json);
    return status != 0;
}
