// An addon for Node.js, by the declarations of N-API that are needed: it loads the library, as one linked with it
// would be loaded.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_info__ *napi_info;
typedef napi_value (*napi_callback)(napi_env, napi_info);
extern int napi_create_double(napi_env, double, napi_value *);
extern int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
extern int napi_set_named_property(napi_env, napi_value, const char *, napi_value);

static void *library;

static napi_value number(napi_env env, double value) {
    napi_value result = NULL;
    napi_create_double(env, value, &result);
    return result;
}

static napi_value has_fibers(napi_env env, napi_info info) {
    return number(env, ((int (*)(void))dlsym(library, "has_fibers"))());
}

static napi_value waiters(napi_env env, napi_info info) {
    return number(env, ((uint32_t (*)(uint32_t))dlsym(library, "waiters"))(1000));
}

static napi_value meetings(napi_env env, napi_info info) {
    return number(env, ((uint32_t (*)(uint32_t))dlsym(library, "meetings"))(200));
}

napi_value napi_register_module_v1(napi_env env, napi_value exports) {
    library = dlopen(LIBRARY, RTLD_NOW);
    if (!library) return NULL;
    const char *names[] = {"has_fibers", "waiters", "meetings"};
    napi_callback functions[] = {has_fibers, waiters, meetings};
    for (int i = 0; i < 3; i++) {
        napi_value function;
        napi_create_function(env, names[i], (size_t)-1, functions[i], NULL, &function);
        napi_set_named_property(env, exports, names[i], function);
    }
    return exports;
}
