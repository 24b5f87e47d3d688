"""Loaders of tables. Each reads what its source publishes and says what it leaves out, and why."""

from __future__ import annotations

from typing import Any

from experiments import german_credit
from experiments.datasets.dataset import Dataset
from experiments.datasets.files import File, locate
from fairlayer.extras import needs

UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"

# fmt: off
ADULT_COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "outcome",
]
# fmt: on
SHA256 = {
    "adult.data.csv": "8207249b44b94e01e961b0d064eecf95ef2e0f5dc5994e83352dbfe0119eb201",
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test.csv": "6c33ef695950e1e8212b1388b81e82bbcb071b5f0cc8235a60c9fb5f1fd91d7d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
    "credit-card-clients.csv": "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02",
    "default of credit card clients.xls": "30c6be3abd8dcfd3e6096c828bad8c2f011238620f5369220bd60cfc82700933",
    "ma2019.csv": "e86a53f7bd88dc7c54e1776c82e4e623941139dcd7c789373dc5ec66a2ce8e13",
    "SBAcase.11.13.17.csv": "9c6ba3e04189457d084f168a78b47eb8ed20d3fcb24ec540e3ec54ced79ce89f",
    "Employee_Performance.xls": "594ca71b688b264175fee7fa1ba0e996200fb0c275a4f26b8244828914682492",
}


def _file(folder: str, name: str, url: str | None = None, member: str | None = None) -> File:
    return File(folder, name, SHA256[name], url, member)


ADULT = {
    "train": (_file("adult", "adult.data.csv"), _file("adult", "adult.data", f"{UCI}/adult/adult.data")),
    "test": (_file("adult", "adult.test.csv"), _file("adult", "adult.test", f"{UCI}/adult/adult.test")),
}
GERMAN = (_file("german", "german.data", f"{UCI}/statlog/german/german.data"),)
CREDIT_CARD = (
    _file("credit_card", "credit-card-clients.csv"),
    _file(
        "credit_card", "default of credit card clients.xls", f"{UCI}/00350/default%20of%20credit%20card%20clients.xls"
    ),
)
SDNIST = (
    "https://media.githubusercontent.com/media/usnistgov/SDNist/main/nist%20diverse%20communities%20data%20excerpts"
)
ACS = (_file("acs", "ma2019.csv", f"{SDNIST}/massachusetts/ma2019.csv"),)
SBA_ZIP = "https://www.tandfonline.com/doi/suppl/10.1080/10691898.2018.1434342/suppl_file/ujse_a_1434342_sm1547.zip"
SBA = (_file("sba", "SBAcase.11.13.17.csv", SBA_ZIP, "SBAcase.11.13.17.csv"),)
EMPLOYEE = (_file("employee", "Employee_Performance.xls"),)
FILES = (ACS, *ADULT.values(), CREDIT_CARD, EMPLOYEE, GERMAN, SBA)  # each with alternatives that serve equally


def adult(fetch: bool = True, verify: bool = True) -> Dataset:
    """UCI Adult: who earns more than 50,000 dollars, 1994; protected: sex, race. 32,561 + 16,281 rows."""
    pd = pandas()
    parts = []
    source = "https://archive.ics.uci.edu/dataset/2/adult"
    for split, choices in ADULT.items():
        file = locate(*choices, source=source, fetch=fetch, verify=verify)
        as_published: dict[str, Any] = {"header": None, "names": ADULT_COLUMNS, "comment": "|"}
        options = {} if file.name.endswith(".csv") else as_published
        frame = pd.read_csv(file.path, skipinitialspace=True, na_values="?", **options)
        parts.append(frame.assign(split=split))
    table = pd.concat(parts, ignore_index=True)
    split = table.pop("split")
    target = (table["outcome"].str.rstrip(".") == ">50K").astype("int64").rename("over_50k")
    return Dataset(
        name="adult",
        task="classification",
        features=table.drop(columns=["outcome", "fnlwgt"]),  # fnlwgt is a sampling weight, not a trait of a person
        target=target,
        protected=table[["sex", "race"]],
        split=split,
        weights=table["fnlwgt"],
        table=table,
        description="Census records of 1994; target: income above 50,000 dollars. 7 % of the rows lack an entry.",
        licence="CC BY 4.0",
        source=source,
    )


def german(fetch: bool = True, verify: bool = True) -> Dataset:
    """UCI German credit: whose credit is good; protected: sex, age over 25. 1,000 rows."""
    source = "https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data"
    file = locate(*GERMAN, source=source, fetch=fetch, verify=verify)
    return Dataset(
        name="german",
        task="classification",
        **german_credit.load(file.path)._asdict(),
        description=german_credit.DESCRIPTION,
        licence=german_credit.LICENCE,
        source=source,
    )


def credit_card(fetch: bool = True, verify: bool = True) -> Dataset:
    """UCI credit-card clients: who defaults next month; protected: sex, marriage. 30,000 rows."""
    pd = pandas()
    source = "https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients"
    file = locate(*CREDIT_CARD, source=source, fetch=fetch, verify=verify)
    if file.name.endswith(".csv"):
        table = pd.read_csv(file.path)
    else:
        table = read_workbook(file, header=1).drop(columns="ID")
        table = table.rename(columns={"default payment next month": "default payment"})
    sex = table["SEX"].map({1: "male", 2: "female"})
    marriage = table["MARRIAGE"].map({1: "married", 2: "single"}).fillna("other")
    return Dataset(
        name="credit_card",
        task="classification",
        features=table.drop(columns="default payment"),
        target=table["default payment"].astype("int64").rename("default"),
        protected=pd.DataFrame({"sex": sex, "marriage": marriage}),
        table=table,
        description="Credit-card clients in Taiwan, 2005; target: default on the next payment (22 %).",
        licence="CC BY 4.0",
        source=source,
    )


def acs(fetch: bool = True, verify: bool = True) -> Dataset:
    """ACS excerpt, Massachusetts 2019: who has an income above 50,000 dollars; protected: sex, race. 6,514 rows."""
    pd = pandas()
    source = "https://github.com/usnistgov/SDNist, American Community Survey of the US Census Bureau"
    file = locate(*ACS, source=source, fetch=fetch, verify=verify)
    everyone = pd.read_csv(file.path, na_values="N")
    table = everyone[everyone["PINCP"].notna()].reset_index(drop=True)  # income is asked from the age of 15 on
    races = {1: "White", 2: "Black", 6: "Asian", 8: "some other race", 9: "two or more races"}
    race = table["RAC1P"].map(races).fillna("American Indian, Alaska or Pacific native")
    sex = table["SEX"].map({1: "male", 2: "female"})
    derived = ["PINCP", "PINCP_DECILE", "POVPIP", "PWGTP", "WGTP"]  # from income, or sampling weights
    return Dataset(
        name="acs",
        task="classification",
        features=table.drop(columns=derived),
        target=(table["PINCP"] > 50_000).astype("int64").rename("over_50k"),
        protected=pd.DataFrame({"sex": sex, "race": race}),
        weights=table["PWGTP"],
        table=table,
        description="American Community Survey 2019, five areas of Massachusetts, persons asked for their income; "
        "target: income above 50,000 dollars.",
        licence="US public domain",
        source=source,
    )


def sba(fetch: bool = True, verify: bool = True) -> Dataset:
    """SBA loans, California real estate: which default; protected: new business, urban. 2,102 rows."""
    pd = pandas()
    source = "Li, Mickel, Taylor 2018, https://doi.org/10.1080/10691898.2018.1434342"
    file = locate(*SBA, source=source, fetch=fetch, verify=verify)
    table = pd.read_csv(file.path, encoding="utf-8-sig", na_values=["", "NA", "N/A", "null", "None"])
    status = table["MIS_Status"].str.upper().str.replace(" ", "")
    identity = ["Selected", "LoanNr_ChkDgt", "Name", "City", "State", "Zip", "ApprovalDate", "DisbursementDate"]
    after_the_fact = ["ChgOffDate", "BalanceGross", "MIS_Status", "ChgOffPrinGr", "Default", "xx"]
    new = (table["NewExist"] == 2).map({True: "new", False: "existing"})
    urban = (table["UrbanRural"] == 1).map({True: "urban", False: "rural or undefined"})
    return Dataset(
        name="sba",
        task="classification",
        features=table.drop(columns=[*identity, *after_the_fact, "UrbanRural"]),
        target=(status == "CHGOFF").astype("int64").rename("default"),
        protected=pd.DataFrame({"new": new, "urban": urban}),
        table=table,
        description="Loans backed by the US Small Business Administration; target: charged off (686 of 2,102). What "
        "is known only after the loan ended is left out of the features.",
        licence="US government data; the source states no licence",
        source=source,
    )


def employee(fetch: bool = True, verify: bool = True) -> Dataset:
    """INX employees: hourly rate; five protected attributes. 1,200 rows."""
    pd = pandas()
    source = "the training project 'INX Future Inc employee performance' (IABAC)"
    file = locate(*EMPLOYEE, source=source, fetch=fetch, verify=verify)
    table = read_workbook(file)
    yes_no = {True: "yes", False: "no"}
    protected = pd.DataFrame(
        {
            "aged 50 or over": (table["Age"] >= 50).map(yes_no),
            "manager": table["EmpJobRole"].str.contains("manager", case=False).map(yes_no),
            "gender": table["Gender"],
            "technical degree": (table["EducationBackground"] == "Technical Degree").map(yes_no),
            "married": (table["MaritalStatus"] == "Married").map(yes_no),
        }
    )
    return Dataset(
        name="employee",
        task="regression",
        features=table.drop(columns=["EmpNumber", "EmpHourlyRate"]),
        target=table["EmpHourlyRate"].astype("float64"),
        protected=protected,
        table=table,
        bounds=(30.0, 100.0),
        description="Invented employees of a company; target: hourly rate, 30 to 100.",
        licence="the source states none",
        source=source,
    )


def pandas() -> Any:
    """The library, or a sentence on how to get it."""
    with needs("Reading a data set", "pandas"):
        import pandas as pd
    return pd


def read_workbook(file: File, header: int = 0) -> Any:
    """The first sheet of an .xls file as a frame; whole numbers as integers."""
    with needs(f"Reading {file.name}", "xlrd"):
        import xlrd  # type: ignore[import-untyped]
    sheet = xlrd.open_workbook(file.path).sheet_by_index(0)
    columns = {
        str(sheet.cell_value(header, j)): sheet.col_values(j, start_rowx=header + 1)
        for j in range(sheet.ncols)
        if sheet.cell_value(header, j) != ""
    }
    frame = pandas().DataFrame(columns)
    for name in frame.columns:
        if frame[name].dtype.kind == "f" and (frame[name] % 1 == 0).all():
            frame[name] = frame[name].astype("int64")
    return frame
