"""The data of the service: records that came from it, and requests to it.

`records` and the modules of records (`transactions`, `account`, `callbacks`) parse what the service sends. They import
nothing that imports `momopay.errors`, so the errors can name them in annotations. `requests` checks what a caller
gives, over `arguments`, and raises RequestValidationError.
"""
