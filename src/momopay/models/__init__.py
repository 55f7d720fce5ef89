"""The data of the service: records from it, and requests to it.

`records`, `transactions` and `callbacks` parse what the service sends. They import nothing that imports
`momopay.errors`, so the errors can name them in annotations. `requests` and `arguments` check what a caller passes and
raise RequestValidationError.
"""
