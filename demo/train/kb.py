"""Small hand-written tables that everyday questions ask about."""

# name: legs, kind, young, food, sound, home
ANIMALS = """
dog 4 mammal puppy meat barks house; cat 4 mammal kitten mice meows house; cow 4 mammal calf grass moos farm
horse 4 mammal foal hay neighs stable; sheep 4 mammal lamb grass bleats farm; pig 4 mammal piglet vegetables grunts farm
goat 4 mammal kid leaves bleats farm; lion 4 mammal cub meat roars savanna; tiger 4 mammal cub meat roars jungle
bear 4 mammal cub fish growls forest; wolf 4 mammal pup meat howls forest; fox 4 mammal cub mice barks forest
rabbit 4 mammal kit carrots squeaks burrow; mouse 4 mammal pup seeds squeaks hole; elephant 4 mammal calf leaves trumpets savanna
giraffe 4 mammal calf leaves hums savanna; zebra 4 mammal foal grass brays savanna; camel 4 mammal calf plants groans desert
monkey 4 mammal infant fruit chatters jungle; deer 4 mammal fawn grass bellows forest; kangaroo 2 mammal joey grass clicks bush
bat 2 mammal pup insects squeaks cave; whale 0 mammal calf krill sings ocean; dolphin 0 mammal calf fish clicks ocean
seal 0 mammal pup fish barks coast; otter 4 mammal pup fish chirps river; squirrel 4 mammal kit nuts chatters tree
hedgehog 4 mammal hoglet insects snuffles garden; beaver 4 mammal kit bark slaps river; donkey 4 mammal foal hay brays farm
hen 2 bird chick grain clucks farm; duck 2 bird duckling plants quacks pond; goose 2 bird gosling grass honks pond
owl 2 bird owlet mice hoots forest; eagle 2 bird eaglet rabbits screeches mountain; penguin 2 bird chick fish calls ice
parrot 2 bird chick seeds talks jungle; pigeon 2 bird squab seeds coos city; swan 2 bird cygnet plants hisses lake
ostrich 2 bird chick plants booms savanna; crow 2 bird chick seeds caws field; sparrow 2 bird chick seeds chirps garden
frog 4 amphibian tadpole insects croaks pond; toad 4 amphibian tadpole insects croaks garden; newt 4 amphibian larva worms clicks pond
snake 0 reptile snakelet mice hisses grass; lizard 4 reptile hatchling insects hisses rocks; turtle 4 reptile hatchling plants hisses sea
crocodile 4 reptile hatchling meat growls river; shark 0 fish pup fish nothing ocean; salmon 0 fish fry insects nothing river
trout 0 fish fry insects nothing stream; tuna 0 fish fry fish nothing ocean; goldfish 0 fish fry flakes nothing bowl
bee 6 insect larva nectar buzzes hive; ant 6 insect larva seeds nothing nest; butterfly 6 insect caterpillar nectar nothing meadow
fly 6 insect maggot sugar buzzes house; beetle 6 insect grub leaves hums forest; mosquito 6 insect larva blood hums swamp
spider 8 arachnid spiderling insects nothing web; scorpion 8 arachnid scorpling insects nothing desert; crab 10 crustacean larva algae clicks beach
lobster 10 crustacean larva fish nothing sea; octopus 8 mollusc larva crabs nothing ocean; snail 0 mollusc snailet leaves nothing garden
"""
COLOURS = {
    "sky": "blue", "grass": "green", "snow": "white", "blood": "red", "coal": "black", "lemon": "yellow", "banana": "yellow",
    "tomato": "red", "carrot": "orange", "orange": "orange", "milk": "white", "chocolate": "brown", "sea": "blue", "sun": "yellow",
    "leaf": "green", "strawberry": "red", "cherry": "red", "night": "black", "elephant": "grey", "frog": "green", "swan": "white",
    "gold": "yellow", "silver": "grey", "ruby": "red", "emerald": "green", "sapphire": "blue", "polar bear": "white", "raven": "black",
    "cucumber": "green", "pea": "green", "egg yolk": "yellow", "fire engine": "red", "cloud": "white", "soil": "brown", "plum": "purple",
    "aubergine": "purple", "lavender": "purple", "flamingo": "pink", "pig": "pink", "pumpkin": "orange", "sand": "yellow", "ash": "grey",
}
OPPOSITES = """hot cold; big small; tall short; fast slow; light dark; day night; up down; left right; good bad; happy sad; old young;
new old; rich poor; strong weak; hard soft; wet dry; full empty; open closed; early late; high low; loud quiet; clean dirty; long short;
wide narrow; thick thin; heavy light; easy difficult; true false; first last; begin end; buy sell; give take; win lose; love hate;
push pull; inside outside; before after; near far; sweet sour; sharp blunt; rough smooth; deep shallow; brave afraid; polite rude;
warm cool; alive dead; awake asleep; black white; cheap expensive; safe dangerous; same different; summer winter; north south; east west;
yes no; always never; remember forget; arrive leave; laugh cry; friend enemy; question answer; noisy silent; lazy busy; simple complicated;
ancient modern; generous stingy; bright dim; tight loose; calm nervous; success failure; accept refuse; increase decrease; start stop"""
LISTS = {
    "fruits|fruit": "apple banana orange pear grape cherry plum peach mango strawberry",
    "vegetables|veggies": "carrot potato onion pea spinach cabbage bean pepper",
    "animals": "dog cat horse lion elephant rabbit bear fox", "farm animals": "cow pig sheep hen goat horse",
    "wild animals": "lion tiger bear wolf fox deer", "pets": "dog cat rabbit hamster parrot goldfish",
    "birds": "eagle owl sparrow duck penguin swan parrot", "insects": "bee ant butterfly beetle fly mosquito",
    "fish": "salmon trout tuna shark cod herring", "colors|colours": "red blue green yellow orange purple black white",
    "countries": "France Japan Brazil Kenya Canada India Italy Egypt", "european countries|countries in Europe": "France Italy Spain Poland Sweden Greece Austria",
    "asian countries|countries in Asia": "Japan China India Thailand Vietnam Nepal", "african countries|countries in Africa": "Kenya Egypt Ghana Nigeria Morocco Senegal",
    "cities": "Paris London Tokyo Rome Berlin Madrid Cairo", "capitals|capital cities": "Paris Rome Madrid Berlin Lisbon Vienna Oslo",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn", "drinks|beverages": "water tea coffee milk juice lemonade",
    "sports": "football tennis swimming running cycling basketball", "musical instruments|instruments": "piano guitar violin flute drum trumpet",
    "tools": "hammer saw screwdriver drill pliers wrench", "flowers": "rose tulip daisy lily sunflower violet", "trees": "oak pine birch maple beech willow",
    "jobs|professions": "teacher doctor baker farmer nurse carpenter", "clothes|pieces of clothing": "shirt trousers coat hat socks shoes",
    "pieces of furniture|furniture": "table chair bed sofa shelf desk", "rooms|rooms in a house": "kitchen bathroom bedroom cellar hall",
    "vehicles|means of transport": "car bus train bicycle boat plane", "metals": "iron gold silver copper tin zinc", "spices|herbs": "pepper cinnamon basil thyme ginger parsley",
    "shapes": "circle square triangle rectangle star", "body parts|parts of the body": "head arm leg hand foot ear",
    "languages": "English French Spanish German Chinese Arabic", "seasons": "spring summer autumn winter", "gemstones|gems": "diamond ruby emerald sapphire opal",
    "desserts|sweets": "cake pudding pie cookies chocolate", "kitchen tools|things in a kitchen": "knife fork spoon pan pot oven",
    "hobbies": "reading painting hiking cooking singing chess", "board games|games": "chess checkers backgammon dominoes", "berries": "strawberry raspberry blueberry blackberry",
    "nuts": "walnut almond hazelnut peanut", "oceans": "Pacific Atlantic Indian Arctic", "rivers": "Nile Amazon Danube Rhine Thames",
    "mountains": "Everest Kilimanjaro Fuji Matterhorn", "things you find in a school|school things": "book pencil desk board chair", "weather words|kinds of weather": "rain snow wind sun fog storm",
}
# English: French, Spanish, German, Italian
WORDS = """hello bonjour hola hallo ciao; goodbye au_revoir adiós auf_Wiedersehen arrivederci; thank_you merci gracias danke grazie; please s'il_vous_plaît por_favor bitte per_favore;
yes oui sí ja sì; no non no nein no; water eau agua Wasser acqua; bread pain pan Brot pane; milk lait leche Milch latte; house maison casa Haus casa; cat chat gato Katze gatto;
dog chien perro Hund cane; book livre libro Buch libro; friend ami amigo Freund amico; love amour amor Liebe amore; day jour día Tag giorno; night nuit noche Nacht notte;
sun soleil sol Sonne sole; moon lune luna Mond luna; sea mer mar Meer mare; tree arbre árbol Baum albero; flower fleur flor Blume fiore; man homme hombre Mann uomo; woman femme mujer Frau donna;
child enfant niño Kind bambino; red rouge rojo rot rosso; blue bleu azul blau blu; green vert verde grün verde; white blanc blanco weiß bianco; black noir negro schwarz nero;
one un uno eins uno; two deux dos zwei due; three trois tres drei tre; four quatre cuatro vier quattro; five cinq cinco fünf cinque; apple pomme manzana Apfel mela; cheese fromage queso Käse formaggio;
wine vin vino Wein vino; coffee café café Kaffee caffè; good bon bueno gut buono; big grand grande groß grande; small petit pequeño klein piccolo; morning matin mañana Morgen mattina; school école escuela Schule scuola;
car voiture coche Auto macchina; train train tren Zug treno; city ville ciudad Stadt città; time temps tiempo Zeit tempo; mother mère madre Mutter madre; father père padre Vater padre; fish poisson pescado Fisch pesce;
bird oiseau pájaro Vogel uccello; fire feu fuego Feuer fuoco; snow neige nieve Schnee neve; happy heureux feliz glücklich felice; egg œuf huevo Ei uovo; hand main mano Hand mano; heart cœur corazón Herz cuore; world monde mundo Welt mondo;
good_morning bonjour buenos_días guten_Morgen buongiorno; good_night bonne_nuit buenas_noches gute_Nacht buonanotte; good_evening bonsoir buenas_tardes guten_Abend buonasera; sorry désolé perdón Entschuldigung scusa;
six six seis sechs sei; seven sept siete sieben sette; eight huit ocho acht otto; nine neuf nueve neun nove; ten dix diez zehn dieci; yellow jaune amarillo gelb giallo; brown marron marrón braun marrone;
brother frère hermano Bruder fratello; sister sœur hermana Schwester sorella; son fils hijo Sohn figlio; daughter fille hija Tochter figlia; family famille familia Familie famiglia; boy garçon chico Junge ragazzo; girl fille chica Mädchen ragazza;
table table mesa Tisch tavolo; chair chaise silla Stuhl sedia; door porte puerta Tür porta; window fenêtre ventana Fenster finestra; street rue calle Straße strada; garden jardin jardín Garten giardino; kitchen cuisine cocina Küche cucina;
bed lit cama Bett letto; key clé llave Schlüssel chiave; money argent dinero Geld denaro; work travail trabajo Arbeit lavoro; year an año Jahr anno; week semaine semana Woche settimana; today aujourd'hui hoy heute oggi; tomorrow demain mañana morgen domani;
yesterday hier ayer gestern ieri; now maintenant ahora jetzt adesso; rain pluie lluvia Regen pioggia; wind vent viento Wind vento; star étoile estrella Stern stella; sky ciel cielo Himmel cielo; river rivière río Fluss fiume; mountain montagne montaña Berg montagna;
horse cheval caballo Pferd cavallo; cow vache vaca Kuh mucca; pig cochon cerdo Schwein maiale; mouse souris ratón Maus topo; butter beurre mantequilla Butter burro; sugar sucre azúcar Zucker zucchero; salt sel sal Salz sale; meat viande carne Fleisch carne;
rice riz arroz Reis riso; tea thé té Tee tè; juice jus jugo Saft succo; orange orange naranja Orange arancia; lemon citron limón Zitrone limone; head tête cabeza Kopf testa; eye œil ojo Auge occhio; foot pied pie Fuß piede; ear oreille oreja Ohr orecchio;
new nouveau nuevo neu nuovo; old vieux viejo alt vecchio; hot chaud caliente heiß caldo; cold froid frío kalt freddo; beautiful beau hermoso schön bello; ship bateau barco Schiff nave; doctor médecin médico Arzt medico; music musique música Musik musica;
I_love_you je_t'aime te_quiero ich_liebe_dich ti_amo; how_are_you comment_ça_va cómo_estás wie_geht_es_dir come_stai; happy_birthday joyeux_anniversaire feliz_cumpleaños alles_Gute_zum_Geburtstag buon_compleanno; see_you_later à_plus_tard hasta_luego bis_später a_dopo;
excuse_me excusez-moi perdone entschuldigen_Sie mi_scusi; welcome bienvenue bienvenido willkommen benvenuto; cheers santé salud prost salute; good_luck bonne_chance buena_suerte viel_Glück buona_fortuna; my_name_is je_m'appelle me_llamo ich_heiße mi_chiamo; I_am_hungry j'ai_faim tengo_hambre ich_habe_Hunger ho_fame"""
LANGUAGES = ["French", "Spanish", "German", "Italian"]
ELEMENTS = """hydrogen H 1;helium He 2;lithium Li 3;carbon C 6;nitrogen N 7;oxygen O 8;fluorine F 9;neon Ne 10;sodium Na 11;magnesium Mg 12;aluminium Al 13;silicon Si 14;
phosphorus P 15;sulfur S 16;chlorine Cl 17;argon Ar 18;potassium K 19;calcium Ca 20;titanium Ti 22;chromium Cr 24;iron Fe 26;cobalt Co 27;nickel Ni 28;copper Cu 29;zinc Zn 30;silver Ag 47;tin Sn 50;
iodine I 53;platinum Pt 78;gold Au 79;mercury Hg 80;lead Pb 82;uranium U 92"""
UNITS = [("kilometer", "meters", 1000), ("meter", "centimeters", 100), ("centimeter", "millimeters", 10), ("kilogram", "grams", 1000),
         ("liter", "milliliters", 1000), ("hour", "minutes", 60), ("minute", "seconds", 60), ("day", "hours", 24), ("week", "days", 7),
         ("year", "months", 12), ("decade", "years", 10), ("century", "years", 100), ("dozen", "pieces", 12), ("foot", "inches", 12),
         ("yard", "feet", 3), ("gallon", "quarts", 4), ("pound", "ounces", 16), ("tonne", "kilograms", 1000), ("millennium", "years", 1000)]
USES = {
    "umbrella": "to stay dry in the rain", "hammer": "to drive nails", "knife": "to cut things", "fork": "to eat", "spoon": "to eat soup", "pen": "to write",
    "pencil": "to write and draw", "broom": "to sweep the floor", "key": "to open a lock", "clock": "to tell the time", "bed": "to sleep in", "chair": "to sit on",
    "lamp": "to give light", "oven": "to bake and cook", "fridge": "to keep food cold", "bicycle": "to ride from place to place", "boat": "to travel on water",
    "telescope": "to look at far things such as stars", "microscope": "to look at very small things", "thermometer": "to measure temperature", "compass": "to find the direction",
    "map": "to find the way", "scissors": "to cut paper and cloth", "soap": "to wash", "towel": "to dry yourself", "toothbrush": "to clean your teeth", "comb": "to tidy your hair",
    "phone": "to talk to people far away", "camera": "to take pictures", "computer": "to work with text, numbers and pictures", "glasses": "to see better", "ladder": "to reach high places",
    "needle": "to sew", "saw": "to cut wood", "shovel": "to dig", "candle": "to give light", "bag": "to carry things", "cup": "to drink from", "plate": "to put food on", "pillow": "to rest your head on",
    "mirror": "to see yourself", "ruler": "to measure and draw lines", "calendar": "to keep track of days", "bridge": "to cross a river or a road", "airplane": "to fly from place to place", "wheel": "to make things roll",
    "hat": "to protect the head", "coat": "to keep warm", "shoe": "to protect the feet", "blanket": "to keep warm in bed", "bucket": "to carry water", "kettle": "to boil water", "dictionary": "to look up words", "rope": "to tie things",
}


def animals(more=()):
    """name -> dict of what the table and the rows in `more` say."""
    out = {}
    for row in ANIMALS.replace("\n", ";").split(";") + list(more):
        if row.strip():
            name, legs, kind, young, food, sound, home = row.split()
            out[name] = {"legs": int(legs), "kind": kind, "young": young, "food": food, "sound": sound, "home": home}
    return out


def pairs():
    """Both directions of the opposites that are unambiguous, and the first of the others."""
    out = {}
    for row in OPPOSITES.replace("\n", " ").split(";"):
        a, b = row.split()
        out.setdefault(a, b)
        out.setdefault(b, a)
    return out


def words():
    out = []
    for row in WORDS.replace("\n", " ").split(";"):
        if row.strip():
            out.append([w.replace("_", " ") for w in row.split()])
    return out


def elements():
    return [row.strip().split() for row in ELEMENTS.replace("\n", "").split(";") if row.strip()]
