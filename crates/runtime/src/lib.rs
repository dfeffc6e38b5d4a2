//! carefree-runtime
